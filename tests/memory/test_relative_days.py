"""A note has the date of a day that is named relative to when it was said, and no date where that is not sure."""

from __future__ import annotations

import pytest

from keepworth import Memory

TUESDAY, SUNDAY, NEW_YEARS_EVE = "2026-12-01", "2026-12-06", "2026-12-31"
END_OF_FEBRUARY = "2028-02-28"
"""A Monday in a leap year."""


def note(text: str, at: str) -> str:
    """Return what the note of a statement has beside its words."""
    with Memory(encoder="hashing", policy=None, log="off") as memory:
        items = memory.add([{"role": "user", "content": text, "said_at": at}], infer=True)
        (item,) = items
        assert item.text.startswith(text)
        return item.text[len(text) :].strip(" ()")


# fmt: off
TABLE = [
    # what is said; its date if it is said on Tuesday, 2026-12-01; and on Sunday, 2026-12-06
    ("I start my new job this Friday.", "2026-12-04", "2026-12-11"),
    ("They rebooked me: the flight leaves at 12:15 on Friday.", "2026-12-04", "2026-12-11"),
    ("The landlord called, the plumber comes on Friday.", "", ""),  # what is past in the other clause says nothing
    ("I got the results, I see the doctor on Thursday.", "", ""),
    ("La réunion est repoussée à vendredi.", "", ""),
    ("I started my new job this Friday.", "", "2026-12-04"),
    ("I start my new job next Friday.", "", "2026-12-11"),  # on a Tuesday it means two days to different people
    ("I start my new job next Monday.", "2026-12-07", "2026-12-07"),
    ("I start my new job this coming Friday.", "2026-12-04", "2026-12-11"),
    ("I started my new job last Friday.", "2026-11-27", "2026-12-04"),
    ("The concert is this Sunday.", "2026-12-06", ""),
    ("My exam is the day after tomorrow.", "2026-12-03", "2026-12-08"),
    ("The day before yesterday I was ill.", "2026-11-29", "2026-12-04"),
    ("I was ill yesterday.", "2026-11-30", "2026-12-05"),
    ("I decided yesterday to learn Spanish.", "2026-11-30", "2026-12-05"),
    ("I'm flying to Rome tomorrow.", "2026-12-02", "2026-12-07"),
    ("I will visit my mother this weekend.", "2026-12-05 to 2026-12-06", "2026-12-05 to 2026-12-06"),
    ("This weekend I went hiking with Ana.", "2026-11-28 to 2026-11-29", "2026-12-05 to 2026-12-06"),
    ("We are moving house next weekend.", "", "2026-12-12 to 2026-12-13"),
    ("I was in Rome last weekend.", "2026-11-28 to 2026-11-29", "2026-11-28 to 2026-11-29"),
    ("I'm in Berlin this week.", "2026-11-30 to 2026-12-06", ""),
    ("I was in Berlin this week.", "2026-11-30 to 2026-12-06", "2026-11-30 to 2026-12-06"),
    ("I'll be in Berlin next week.", "2026-12-07 to 2026-12-13", "2026-12-07 to 2026-12-13"),
    ("I was in Berlin last week.", "2026-11-23 to 2026-11-29", ""),
    ("I'm on holiday this month.", "2026-12", "2026-12"),
    ("I'm on holiday next month.", "2027-01", "2027-01"),
    ("I was on holiday last month.", "2026-11", "2026-11"),
    ("I'm getting married next year.", "2027-01 to 2027-12", "2027-01 to 2027-12"),
    ("My birthday is a week from today.", "2026-12-08", "2026-12-13"),
    ("My birthday is a week from tomorrow.", "2026-12-09", "2026-12-14"),
    ("I have to finish the report by Friday.", "2026-12-04", "2026-12-11"),
    ("I finished the report by Friday.", "", ""),
    ("On Friday I had a headache.", "2026-11-27", "2026-12-04"),
    ("I'm flying to Rome on Friday.", "2026-12-04", "2026-12-11"),
    ("My exam is on Friday.", "2026-12-04", "2026-12-11"),
    ("I go to the gym on Friday.", "", ""),
    ("I always go to the gym on Friday.", "", ""),
    ("I heard that the library closes on Friday.", "", ""),
    ("I got my appointment moved to this Friday.", "", ""),
    ("I'm flying to Rome on Friday the 11th.", "", ""),
    ("I met Ana on Friday last week.", "2026-11-27", ""),
    ("I'm meeting Ana on Friday next week.", "2026-12-11", ""),
    ("I leave for Oslo in two days.", "2026-12-03", "2026-12-08"),
    ("I read the whole book in two days.", "", ""),
    ("I can read a whole book in two days.", "", ""),
    ("I got a dog two weeks ago.", "2026-11-17", "2026-11-22"),
    ("I got a dog a few days ago.", "", ""),
    ("I got a dog two or three days ago.", "", ""),
    ("I'm cooking for Ana tonight.", "2026-12-01", "2026-12-06"),
    ("I saw my dentist this morning.", "2026-12-01", "2026-12-06"),
    ("I slept badly last night.", "2026-11-30", "2026-12-05"),
    ("Our shop is closed the last week of the year.", "", ""),
    ("I will see the dentist the Friday after next.", "", ""),
    ("I will see the dentist before Friday.", "", ""),
    ("I was ill yesterday and I have an exam tomorrow.",
     "yesterday = 2026-11-30; tomorrow = 2026-12-02", "yesterday = 2026-12-05; tomorrow = 2026-12-07"),
    # German
    ("Übermorgen habe ich eine Prüfung.", "2026-12-03", "2026-12-08"),
    ("Vorgestern war ich krank.", "2026-11-29", "2026-12-04"),
    ("Gestern war ich krank.", "2026-11-30", "2026-12-05"),
    ("Morgen früh muss ich zum Zahnarzt.", "2026-12-02", "2026-12-07"),
    ("Am Morgen trinke ich Kaffee.", "", ""),
    ("Nächsten Freitag fliege ich nach Rom.", "", "2026-12-11"),
    ("Kommenden Freitag fliege ich nach Rom.", "2026-12-04", "2026-12-11"),
    ("Letzten Freitag war ich in Rom.", "2026-11-27", "2026-12-04"),
    ("Am Freitag war ich beim Arzt.", "2026-11-27", "2026-12-04"),
    ("Am Freitag habe ich eine Prüfung.", "2026-12-04", "2026-12-11"),
    ("Am Freitag gehe ich zum Markt.", "", ""),
    ("Nächste Woche bin ich in Berlin.", "2026-12-07 to 2026-12-13", "2026-12-07 to 2026-12-13"),
    ("Letzte Woche war ich in Berlin.", "2026-11-23 to 2026-11-29", "2026-11-23 to 2026-11-29"),
    ("Vor zwei Wochen bin ich umgezogen.", "2026-11-17", "2026-11-22"),
    ("In zwei Tagen fliege ich nach Rom.", "2026-12-03", "2026-12-08"),
    ("Heute in einer Woche habe ich Geburtstag.", "2026-12-08", "2026-12-13"),
    ("Ich wohne hier in Bonn.", "", ""),
    # Spanish
    ("Mañana tengo un examen.", "2026-12-02", "2026-12-07"),
    ("Pasado mañana me voy a Madrid.", "2026-12-03", "2026-12-08"),
    ("Por la mañana bebo café.", "", ""),
    ("Ayer por la mañana compré pan.", "2026-11-30", "2026-12-05"),
    ("Anteayer estuve enfermo.", "2026-11-29", "2026-12-04"),
    ("El viernes que viene tengo una cita.", "2026-12-04", "2026-12-11"),
    ("El viernes fui al médico.", "2026-11-27", "2026-12-04"),
    ("La semana pasada estuve en Roma.", "2026-11-23 to 2026-11-29", "2026-11-23 to 2026-11-29"),
    ("La semana que viene estoy en Roma.", "2026-12-07 to 2026-12-13", "2026-12-07 to 2026-12-13"),
    ("Dentro de dos semanas me mudo a Sevilla.", "2026-12-15", "2026-12-20"),
    ("Hace dos semanas compré un coche.", "2026-11-17", "2026-11-22"),
    # French
    ("Après-demain, j'ai un examen.", "2026-12-03", "2026-12-08"),
    ("Hier, j'étais malade.", "2026-11-30", "2026-12-05"),
    ("Avant-hier, j'étais malade.", "2026-11-29", "2026-12-04"),
    ("Demain, je pars à Rome.", "2026-12-02", "2026-12-07"),
    ("Je pars à Rome la semaine prochaine.", "2026-12-07 to 2026-12-13", "2026-12-07 to 2026-12-13"),
    ("Vendredi prochain, je vais à Rome.", "2026-12-04", "2026-12-11"),
    ("J'ai vu Marie vendredi.", "2026-11-27", "2026-12-04"),
    ("Dans deux jours, je pars à Rome.", "2026-12-03", "2026-12-08"),
    ("Il y a deux semaines, j'ai acheté un vélo.", "2026-11-17", "2026-11-22"),
    ("Le vendredi, je vais au marché.", "", ""),
]
BORDERS = [
    ("I'm flying to Rome tomorrow.", NEW_YEARS_EVE, "2027-01-01"),
    ("I start my new job this Friday.", NEW_YEARS_EVE, "2027-01-01"),
    ("I'm in Berlin this week.", NEW_YEARS_EVE, "2026-12-28 to 2027-01-03"),
    ("I'm on holiday next month.", NEW_YEARS_EVE, "2027-01"),
    ("I'll be in Berlin next week.", NEW_YEARS_EVE, "2027-01-04 to 2027-01-10"),
    ("I was on holiday last month.", "2027-01-01", "2026-12"),
    ("I was ill yesterday.", "2027-01-01", "2026-12-31"),
    ("I got a dog two weeks ago.", "2027-01-05", "2026-12-22"),
    ("My exam is the day after tomorrow.", END_OF_FEBRUARY, "2028-03-01"),
    ("I leave for Oslo in two days.", END_OF_FEBRUARY, "2028-03-01"),
    ("I'm on holiday this month.", END_OF_FEBRUARY, "2028-02"),
    ("Übermorgen habe ich eine Prüfung.", "2026-11-29", "2026-12-01"),
]
# fmt: on


@pytest.mark.parametrize(("text", "on_tuesday", "on_sunday"), TABLE)
def test_a_note_has_the_date_of_its_relative_day(text: str, on_tuesday: str, on_sunday: str) -> None:
    assert (note(text, TUESDAY), note(text, SUNDAY)) == (on_tuesday, on_sunday)


@pytest.mark.parametrize(("text", "at", "date"), BORDERS)
def test_days_cross_the_ends_of_months_and_years(text: str, at: str, date: str) -> None:
    assert note(text, at) == date
