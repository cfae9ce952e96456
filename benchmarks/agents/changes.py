"""Conversations with planted changes: what a person says of themselves, and later says anew, among questions, thanks and wishes.

Every attribute and every wording is on one side. The first rules of `keepworth.memory.policy.claims` were written against "dev"
alone. "seen" was held out from them, then looked at. "held-out" was written after that and before anything was changed for it:
nothing is tuned on it.

Beside what changes, each conversation has statements on one topic that do not contradict each other (`BESIDE`): both must stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class PlantedAttribute:
    """states: wordings of a first statement, with {v}; changes: of a later one, with {v} and perhaps {old}; ends: wordings after
    which the old value holds no more and there is no new one. after: "state" and "change" by side of the wording."""

    name: str
    values: tuple[str, ...]
    question: str
    states: dict[str, tuple[str, ...]]
    changes: dict[str, tuple[str, ...]]
    ends: dict[str, tuple[str, ...]] = field(default_factory=dict)


DEV = (
    PlantedAttribute(
        "home",
        ("Bergen", "Oslo", "Lyon", "Porto", "Leeds", "Osaka", "Quito", "Denver"),
        "Where does the user live?",
        {
            "dev": ("I live in {v}.", "I'm based in {v}.", "I live in {v} with my family.", "My home is in {v}."),
            "seen": (
                "These days home is {v} for us.",
                "I rent a flat over in {v}.",
                "I grew up elsewhere but I call {v} home.",
            ),
        },
        {
            "dev": (
                "I moved to {v} last month.",
                "I live in {v} now.",
                "We just moved from {old} to {v}.",
                "I've relocated to {v}.",
                "Actually, I no longer live in {old}, I live in {v}.",
                "I'm in {v} these days, I moved there in March.",
            ),
            "seen": (
                "Big news, the removal van came and we are now {v} people.",
                "I packed up and left {old} for {v}.",
                "So I ended up taking a flat in {v}, goodbye {old}.",
                "My new place is in {v}.",
                "We settled down in {v} after all.",
            ),
        },
    ),
    PlantedAttribute(
        "employer",
        ("Equinor", "Siemens", "Nordea", "Philips", "Ikea", "Nokia", "Bosch", "Shell"),
        "Where does the user work?",
        {
            "dev": ("I work at {v}.", "I work for {v} as an analyst.", "My employer is {v}."),
            "seen": ("I earn my living at {v}.", "My day job is with {v}.", "I'm an engineer over at {v}."),
        },
        {
            "dev": (
                "I started a new job at {v} last week.",
                "I work at {v} now.",
                "I left {old} and joined {v}.",
                "I've switched from {old} to {v} for work.",
                "My new employer is {v}.",
            ),
            "seen": (
                "{v} hired me, so I handed in my notice at {old}.",
                "As of Monday I'm with {v}.",
                "I said goodbye to {old}, {v} is my new workplace.",
                "I'm at {v} these days.",
            ),
        },
    ),
    PlantedAttribute(
        "phone",
        ("555-0101", "555-0142", "555-0177", "555-0190", "555-0123", "555-0166"),
        "What is the user's phone number?",
        {
            "dev": ("My phone number is {v}.", "You can reach me at my number, my phone number is {v}."),
            "seen": (
                "The number to call me on is {v}.",
                "Text me on {v} if anything comes up.",
                "My mobile is {v}.",
            ),
        },
        {
            "dev": (
                "My new phone number is {v}.",
                "My phone number has changed to {v}.",
                "Actually, my phone number is {v}.",
                "I got a new phone number, it's {v}.",
            ),
            "seen": (
                "I lost my old SIM, so call me on {v} from now on.",
                "My mobile changed, please use {v}.",
                "Ignore {old}, my mobile is {v}.",
                "New digits for me: {v}.",
            ),
        },
    ),
    PlantedAttribute(
        "favourite colour",
        ("green", "blue", "red", "purple", "orange", "yellow", "turquoise"),
        "What is the user's favourite colour?",
        {
            "dev": ("My favourite colour is {v}.", "My favorite color is {v}."),
            "seen": (
                "I like {v} more than any other colour.",
                "The colour I love most is {v}.",
                "My favourite colour has always been {v}.",
            ),
        },
        {
            "dev": (
                "My favourite colour is {v} now.",
                "Actually my favorite color is {v}, not {old}.",
                "My favourite colour has changed, it's {v} now.",
            ),
            "seen": (
                "I've grown tired of {old}, these days {v} is my favourite colour.",
                "I'm more of a {v} person now when it comes to colours.",
                "My favourite colour? It used to be {old}, it is {v} now.",
            ),
        },
    ),
    PlantedAttribute(
        "drink",
        ("tea", "coffee", "cocoa", "mate", "kombucha", "lemonade"),
        "Which drink does the user prefer in the morning?",
        {
            "dev": (
                "I prefer {v} in the morning.",
                "I like to have {v} in the morning.",
                "I drink {v} in the morning.",
            ),
            "seen": (
                "My mornings start with {v}.",
                "I can't begin a morning without {v}.",
                "It is always {v} for me in the morning.",
            ),
        },
        {
            "dev": (
                "I switched from {old} to {v} in the morning.",
                "I drink {v} in the morning now instead of {old}.",
                "I prefer {v} in the morning now.",
                "I've given up {old} and drink {v} in the morning.",
            ),
            "seen": (
                "My mornings start with {v} now.",
                "I cut out {old}, it's {v} for me in the morning.",
                "{v} has replaced {old} in my mornings.",
                "I traded {old} for {v} in the morning.",
            ),
        },
    ),
    PlantedAttribute(
        "allergy",
        ("peanuts", "shellfish", "strawberries", "pollen", "cashews", "sesame"),
        "What is the user allergic to?",
        {
            "dev": ("I'm allergic to {v}.", "I have an allergy to {v}."),
            "seen": (
                "{v} give me a bad allergic reaction.",
                "I get hives from {v}.",
                "I can't eat {v}, allergies.",
            ),
        },
        {
            "dev": ("It turns out that I'm allergic to {v}, not {old}.",),
            "seen": ("The test says the allergy is to {v} and not to {old}.",),
        },
        {
            "dev": (
                "I'm no longer allergic to {old}.",
                "I'm not allergic to {old} any more.",
                "I'm not allergic to {old} anymore, my doctor says.",
            ),
            "seen": (
                "My peanut days are back, the {old} allergy is gone.",
                "I outgrew my allergy to {old}.",
                "Good news, {old} are fine for me again.",
            ),
        },
    ),
    PlantedAttribute(
        "diet",
        ("vegan", "vegetarian", "pescatarian", "keto"),
        "What is the user's diet?",
        {
            "dev": ("I'm {v}.", "I am {v}, so no meat for me.", "I follow a {v} diet."),
            "seen": ("I eat {v} food only.", "My diet is {v}.", "I've been {v} for years."),
        },
        {
            "dev": ("I'm {v} now.", "I've gone {v}.", "I'm not {old} any more, I'm {v}."),
            "seen": ("I decided to go {v}.", "My diet is {v} these days.", "I switched to a {v} diet."),
        },
        {
            "dev": ("I'm no longer {old}.", "I stopped being {old}."),
            "seen": ("I gave up being {old}.", "I eat everything again, being {old} is over for me."),
        },
    ),
    PlantedAttribute(
        "age",
        ("29", "34", "41", "52", "38", "47"),
        "How old is the user?",
        {
            "dev": ("I'm {v} years old.", "I am {v}."),
            "seen": ("My age is {v}.", "I'm {v}, by the way.", "I celebrated my {v}th birthday."),
        },
        {
            "dev": ("I turned {v} yesterday.", "I'm {v} years old now.", "I just turned {v}."),
            "seen": (
                "It was my birthday, {v} now.",
                "Since last week I am {v}.",
                "I had my {v}th birthday on Sunday.",
            ),
        },
    ),
    PlantedAttribute(
        "sister's home",
        ("Rome", "Prague", "Dublin", "Athens", "Krakow", "Malmo"),
        "Where does the user's sister live?",
        {
            "dev": ("My sister lives in {v}.", "My sister Eva lives in {v}."),
            "seen": (
                "My sister has a house in {v}.",
                "My sister is based in {v}.",
                "{v} is where my sister lives.",
            ),
        },
        {
            "dev": ("My sister moved to {v}.", "My sister lives in {v} now.", "My sister has moved from {old} to {v}."),
            "seen": (
                "My sister relocated to {v}.",
                "My sister left {old}, she is in {v} now.",
                "My sister settled in {v} this summer.",
            ),
        },
    ),
    PlantedAttribute(
        "appointment",
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
        "When is the user's dentist appointment?",
        {
            "dev": ("My dentist appointment is on {v}.", "My dentist appointment is {v} at nine."),
            "seen": (
                "I see the dentist on {v}.",
                "The dentist expects me on {v}.",
                "My dentist appointment is set for {v}.",
            ),
        },
        {
            "dev": (
                "My dentist appointment was moved to {v}.",
                "My dentist appointment is on {v} instead of {old}.",
                "My dentist appointment is now on {v}.",
            ),
            "seen": (
                "They shifted my dentist appointment to {v}.",
                "The dentist can only see me on {v}, not on {old}.",
                "My dentist appointment got pushed to {v}.",
            ),
        },
    ),
)

SEEN = (
    PlantedAttribute(
        "gym",
        ("Fitbase", "Ironworks", "Zenhall", "Corefit", "Uptown Gym"),
        "Which gym does the user go to?",
        {
            "dev": ("My gym is {v}.", "I go to {v} for training."),
            "seen": ("I work out at {v}.", "I have a membership at {v}."),
        },
        {
            "dev": ("My gym is {v} now.", "I switched from {old} to {v} for training.", "My new gym is {v}."),
            "seen": (
                "I cancelled {old} and signed up at {v}.",
                "I work out at {v} these days.",
                "I let {old} lapse and train at {v}.",
            ),
        },
    ),
    PlantedAttribute(
        "car",
        ("Volvo", "Skoda", "Mazda", "Tesla", "Peugeot"),
        "Which car does the user drive?",
        {
            "dev": ("I drive a {v}.", "My car is a {v}."),
            "seen": ("There is a {v} in my garage.", "I get around in a {v}."),
        },
        {
            "dev": ("I drive a {v} now.", "My new car is a {v}.", "I sold my {old} and drive a {v} now."),
            "seen": (
                "We traded in the {old} for a {v}.",
                "The {old} died on me, so I bought a {v}.",
                "I get around in a {v} these days.",
            ),
        },
    ),
    PlantedAttribute(
        "language course",
        ("Spanish", "Polish", "Korean", "Italian", "Arabic"),
        "Which language is the user studying?",
        {
            "dev": ("I study {v} in the evenings.", "I'm learning {v}."),
            "seen": ("I take {v} lessons after work.", "My evening class is {v}."),
        },
        {
            "dev": (
                "I study {v} in the evenings now instead of {old}.",
                "I'm not learning {old} any more, I'm learning {v}.",
            ),
            "seen": (
                "I dropped {old} and picked up {v}.",
                "My evening class is {v} now.",
                "I swapped my {old} lessons for {v}.",
            ),
        },
    ),
    PlantedAttribute(
        "doctor",
        ("Dr Moreau", "Dr Lindqvist", "Dr Okafor", "Dr Petrov", "Dr Tanaka"),
        "Who is the user's doctor?",
        {
            "dev": ("My doctor is {v}.", "My doctor is called {v}."),
            "seen": ("I'm a patient of {v}.", "{v} is the one who looks after me."),
        },
        {
            "dev": ("My new doctor is {v}.", "My doctor is {v} now.", "My doctor has changed, it's {v} now."),
            "seen": (
                "{old} retired and {v} took me on.",
                "I'm a patient of {v} now.",
                "I see {v} rather than {old} as my doctor.",
            ),
        },
    ),
    PlantedAttribute(
        "team",
        ("Ajax", "Benfica", "Celtic", "Rosenborg", "Sevilla"),
        "Which football team does the user support?",
        {
            "dev": ("I support {v}.", "My football team is {v}."),
            "seen": ("I'm a {v} fan.", "I never miss a match of {v}."),
        },
        {
            "dev": ("I support {v} now instead of {old}.", "My football team is {v} now."),
            "seen": (
                "I've turned my back on {old} and cheer for {v}.",
                "Call me a {v} fan from now on.",
                "I'm a {v} fan these days.",
            ),
        },
    ),
    PlantedAttribute(
        "budget",
        ("500 euros", "800 euros", "1200 euros", "300 euros", "950 euros"),
        "What is the user's budget for the trip?",
        {
            "dev": ("My budget for the trip is {v}.", "My trip budget is {v}."),
            "seen": ("I can spend {v} on the trip.", "The trip may cost {v}."),
        },
        {
            "dev": ("My budget for the trip is now {v}.", "My trip budget has changed to {v}."),
            "seen": (
                "I can spend {v} on the trip after all.",
                "Make that {v} for the trip.",
                "My trip budget went up to {v}.",
            ),
        },
    ),
    PlantedAttribute(
        "smoking",
        ("cigarettes", "a pipe", "cigars"),
        "What does the user smoke?",
        {"dev": ("I smoke {v}.",), "seen": ("I enjoy {v} after dinner.", "I'm a smoker of {v}.")},
        {"dev": ("I smoke {v} now instead of {old}.",), "seen": ("I moved on from {old} to {v}.",)},
        {
            "dev": ("I stopped smoking {old}.", "I no longer smoke {old}."),
            "seen": ("I kicked the habit of {old}.", "I haven't touched {old} in months."),
        },
    ),
    PlantedAttribute(
        "wake-up time",
        ("5:30", "6:15", "7:00", "7:45", "8:30"),
        "When does the user get up?",
        {
            "dev": ("I wake up at {v}.", "My alarm is set for {v}."),
            "seen": ("I'm out of bed by {v}.", "My day begins at {v}."),
        },
        {
            "dev": ("I wake up at {v} now.", "My alarm is set for {v} now."),
            "seen": (
                "I'm out of bed by {v} these days.",
                "I sleep in until {v} now.",
                "My day begins at {v} since the new year.",
            ),
        },
    ),
)
"""Attributes that the first rules were not written against. Their "dev" wordings are put like those of the others."""


def _worded(
    name: str, states: tuple[str, ...], changes: tuple[str, ...], ends: tuple[str, ...] = ()
) -> PlantedAttribute:
    """An attribute of the dev side in the wordings that are held out."""
    known = next(each for each in DEV if each.name == name)
    return replace(known, states={"held-out": states}, changes={"held-out": changes}, ends={"held-out": ends})


REWORDED = (
    _worded(
        "home",
        (
            "We have a little house in {v}.",
            "{v} is where I live.",
            "I'm a {v} resident.",
            "I share an apartment in {v} with two others.",
        ),
        (
            "We sold up in {old} and bought a place in {v}.",
            "I've been living in {v} since the summer.",
            "We traded city life in {old} for a quiet street in {v}.",
            "As it happens I'm a {v} resident these days.",
            "The boxes are unpacked, {v} is home now.",
        ),
    ),
    _worded(
        "employer",
        (
            "I'm on the payroll of {v}.",
            "I do accounting for {v}.",
            "{v} pays my salary.",
            "I've been with {v} for six years.",
        ),
        (
            "{v} made me an offer and I took it, so {old} is history.",
            "My badge says {v} nowadays.",
            "I jumped ship from {old} to {v}.",
            "Since March my paycheck comes from {v}.",
            "I resigned at {old}, my first day at {v} was yesterday.",
        ),
    ),
    _worded(
        "phone",
        (
            "You'll find me under {v}.",
            "My cell is {v}.",
            "Here's my number: {v}.",
        ),
        (
            "My carrier gave me another number, {v}.",
            "{old} is dead, dial {v} instead.",
            "I changed providers and ended up with {v} as my number.",
            "My cell is {v} as of today.",
        ),
    ),
    _worded(
        "favourite colour",
        (
            "No colour beats {v} in my eyes.",
            "Everything I own is {v}, I just love that colour.",
            "If I had to pick a colour, it would be {v}.",
        ),
        (
            "I've gone off {old}, {v} is the colour for me.",
            "My taste in colours shifted from {old} to {v}.",
            "Forget {old}, my heart belongs to {v} as a colour now.",
            "Lately {v} has become the colour I like best.",
        ),
    ),
    _worded(
        "drink",
        (
            "First thing in the morning I pour myself {v}.",
            "My breakfast drink is {v}.",
            "I'm not human in the morning before my {v}.",
        ),
        (
            "My doctor made me drop {old}, so mornings mean {v} these days.",
            "I've moved on to {v} at breakfast.",
            "My breakfast drink is {v} since January.",
            "No more {old} for me in the morning, I make {v}.",
        ),
    ),
    _worded(
        "allergy",
        (
            "My throat swells up when I eat {v}.",
            "I have to stay away from {v} because of an allergy.",
            "{v} trigger my allergy.",
        ),
        (
            "They had it wrong, it is {v} that I react to and not {old}.",
            "My new blood test says {v} are the culprit rather than {old}.",
        ),
        (
            "I can have {old} again, the allergy went away.",
            "Turns out {old} never were the problem, I tolerate them fine.",
            "The doctors cleared me, my allergy to {old} has disappeared.",
        ),
    ),
    _worded(
        "diet",
        (
            "I keep a {v} kitchen.",
            "As a {v} person I check every label.",
            "I only cook {v} meals for myself.",
        ),
        (
            "I've been {v} since New Year.",
            "After years of being {old} I went {v}.",
            "My meals are all {v} nowadays.",
            "I'm trying out life as a {v} person, {old} was not for me.",
        ),
        (
            "I quit the {old} diet.",
            "My {old} phase has ended.",
        ),
    ),
    _worded(
        "age",
        (
            "I was born {v} years ago.",
            "At {v} I feel quite fit.",
            "I'm a {v}-year-old.",
        ),
        (
            "Yesterday I blew out {v} candles.",
            "I've hit {v} now.",
            "My friends threw me a party for turning {v}.",
            "I'm officially {v} as of this week.",
        ),
    ),
    _worded(
        "sister's home",
        (
            "My sister rents a studio in {v}.",
            "You can find my sister in {v}.",
            "My sister and her kids are at home in {v}.",
        ),
        (
            "My sister has left {old} behind for {v}.",
            "My sister bought a flat in {v} and gave up the one in {old}.",
            "My sister swapped {old} for {v}.",
            "These days you can find my sister in {v}.",
        ),
    ),
    _worded(
        "appointment",
        (
            "I'm due at the dentist on {v}.",
            "My teeth get checked on {v}.",
            "There's a dentist visit in my diary for {v}.",
        ),
        (
            "The dentist called, I'm due on {v} instead.",
            "They asked me to come to the dentist on {v} rather than {old}.",
            "My dentist visit slipped to {v}.",
            "The dentist can't do {old}, so it will be {v}.",
        ),
    ),
)
"""What the rules know by name, in wordings that are held out."""

HELD_OUT = (
    PlantedAttribute(
        "bank",
        ("Nordea", "Barclays", "Rabobank", "Santander", "Monzo"),
        "Which bank does the user have an account with?",
        {"held-out": ("My savings are with {v}.", "I bank with {v}.", "I have my account at {v}.")},
        {
            "held-out": (
                "I closed my account at {old} and opened one at {v}.",
                "I bank with {v} nowadays.",
                "All my money sits at {v} since the fees went up.",
                "My savings went from {old} over to {v}.",
            )
        },
    ),
    PlantedAttribute(
        "instrument",
        ("the violin", "the piano", "the flute", "the drums", "the trumpet"),
        "Which instrument does the user practise?",
        {"held-out": ("I practise {v} every day.", "I take lessons on {v}.", "I've been playing {v} since school.")},
        {
            "held-out": (
                "I sold my gear and practise {v} every day now.",
                "I put {old} aside and took up {v}.",
                "My lessons are on {v} these days.",
                "{v} it is for me from here on, {old} was too loud.",
            )
        },
    ),
    PlantedAttribute(
        "commute",
        ("bus", "tram", "train", "bike", "ferry"),
        "How does the user get to work?",
        {"held-out": ("I take the {v} to the office.", "I ride to work by {v}.", "My way to work is by {v}.")},
        {
            "held-out": (
                "The {old} line closed, so I take the {v} to the office.",
                "I get to the office by {v} these days.",
                "I've swapped the {old} for the {v} on my way to work.",
                "My way to work is by {v} since the spring.",
            )
        },
    ),
    PlantedAttribute(
        "laptop",
        ("ThinkPad", "MacBook", "XPS", "Zenbook", "Framework"),
        "Which laptop does the user work on?",
        {"held-out": ("I do all my writing on a {v}.", "My laptop is a {v}.", "I type this on my {v}.")},
        {
            "held-out": (
                "My {old} gave up the ghost, a {v} took its place.",
                "I do all my writing on a {v} now.",
                "I finally retired the {old} and got myself a {v}.",
                "The company handed me a {v} to replace my {old}.",
            )
        },
    ),
    PlantedAttribute(
        "thesis topic",
        ("glaciers", "whales", "bridges", "vaccines", "medieval trade"),
        "What is the user's thesis about?",
        {"held-out": ("My thesis is about {v}.", "I'm writing my thesis on {v}.", "For my thesis I look at {v}.")},
        {
            "held-out": (
                "My supervisor talked me out of {old}, my thesis is about {v} now.",
                "I'm writing my thesis on {v} after all.",
                "I threw out the chapter on {old}, for my thesis I look at {v}.",
                "My thesis has turned into one about {v}.",
            )
        },
    ),
    PlantedAttribute(
        "partner's job",
        ("baker", "pilot", "lawyer", "florist", "plumber"),
        "What does the user's partner do for a living?",
        {
            "held-out": (
                "My partner is a {v}.",
                "My partner earns a living as a {v}.",
                "My partner has been a {v} for ages.",
            )
        },
        {
            "held-out": (
                "My partner retrained and is a {v} now.",
                "My partner quit being a {old} and became a {v}.",
                "My partner earns a living as a {v} these days.",
                "My partner went from {old} to {v}.",
            )
        },
    ),
    PlantedAttribute(
        "streaming service",
        ("Mubi", "Netflix", "Hulu", "Crunchyroll", "Disney Plus"),
        "Which streaming service does the user subscribe to?",
        {"held-out": ("I watch everything on {v}.", "We have a subscription to {v}.", "{v} is what we stream on.")},
        {
            "held-out": (
                "We cancelled {old} and subscribe to {v}.",
                "I watch everything on {v} these days.",
                "We let {old} go, our subscription is to {v} now.",
                "{v} is what we stream on since {old} raised the price.",
            )
        },
    ),
    PlantedAttribute(
        "meeting place",
        ("the library", "the town hall", "the harbour cafe", "the school gym", "the old mill"),
        "Where does the user's book club meet?",
        {
            "held-out": (
                "My book club meets at {v}.",
                "Our book club gathers in {v}.",
                "We hold the book club at {v}.",
            )
        },
        {
            "held-out": (
                "My book club meets at {v} from next week on.",
                "We had to leave {old}, our book club gathers in {v}.",
                "The book club found a new home in {v}.",
                "They kicked our book club out of {old}, it's {v} now.",
            )
        },
    ),
    PlantedAttribute(
        "weekly distance",
        ("20 km", "35 km", "50 km", "65 km", "80 km"),
        "How far does the user run each week?",
        {"held-out": ("I run {v} a week.", "My weekly mileage is {v}.", "I cover {v} on foot every week.")},
        {
            "held-out": (
                "I'm up to {v} a week with my running.",
                "I run {v} a week now.",
                "My weekly mileage went from {old} to {v}.",
                "My knee only allows {v} a week at the moment.",
            )
        },
    ),
    PlantedAttribute(
        "medication",
        ("ibuprofen", "metformin", "lisinopril", "sertraline", "omeprazole"),
        "Which medication does the user take?",
        {"held-out": ("I take {v} every day.", "My doctor has me on {v}.", "I was prescribed {v}.")},
        {
            "held-out": (
                "My doctor took me off {old} and put me on {v}.",
                "I take {v} every day these days.",
                "They replaced my {old} by {v}.",
            )
        },
        {"held-out": ("I came off {old}.", "I don't need {old} any longer.", "My doctor ended the {old}.")},
    ),
)
"""Attributes and wordings that are both held out."""

STABLE = {
    "dev": (
        "I have two kids.",
        "My dog is called Rex.",
        "I play the cello in an orchestra.",
        "I bought a tent yesterday.",
        "We are planning a trip to Japan in May.",
        "My brother Tom works as a nurse.",
        "I always take the early train.",
        "Please always answer in short sentences.",
        "I love hiking in the mountains.",
        "I hate cilantro.",
    ),
    "seen": (
        "Our twins are in second grade.",
        "The cat, Misty, sleeps on my desk.",
        "I sing in a choir on Thursdays.",
        "I ordered a new bike last Saturday.",
        "We'd love to see Norway next summer.",
        "My uncle Per repairs boats.",
        "I can't fall asleep with the light on.",
        "Whenever you list things, keep it under five.",
        "Nothing beats a walk along the coast for me.",
        "Olives make me gag.",
    ),
    "held-out": (
        "Our son starts school in August.",
        "I keep bees behind the shed.",
        "My grandmother taught me how to knit.",
        "I'm left-handed.",
        "I booked a cabin for the first week of July.",
        "My flatmate Rosa is a night owl.",
        "I get seasick on small boats.",
        "Keep your replies free of emojis.",
        "I collect old maps of the Arctic.",
        "Loud restaurants put me off.",
        "I finished my first marathon in 2019.",
        "Our garden faces north.",
    ),
}
CHAT = {
    "dev": (
        "Thanks, that helps!",
        "Great, thank you.",
        "Noted!",
        "Hi there!",
        "What should I cook tonight?",
        "Can you recommend a good book?",
        "Tell me a joke.",
        "Write a short poem about the sea.",
        "How do I boil an egg?",
        "That sounds good.",
        "Please explain how tides work.",
        "I was wondering what the weather is like.",
        "Ok.",
        "I'd like to know more about sourdough.",
        "Sounds great, let's do that.",
        "Can you help me plan the weekend?",
        "I think that's a good idea.",
        "Give me three ideas for a birthday party.",
    ),
    "seen": (
        "Cheers, much appreciated!",
        "Perfect, exactly what I needed.",
        "Got it.",
        "Good morning!",
        "Any thoughts on a quick lunch?",
        "Could you walk me through photosynthesis?",
        "Come up with a name for a bakery.",
        "Proofread this sentence for me.",
        "Why is the sky blue?",
        "Interesting, I never knew that.",
        "Walk me through setting up a printer.",
        "I wonder how long that takes.",
        "Fine by me.",
        "I'd be grateful for a short summary.",
        "Wow, that's cheaper than I expected.",
        "Is it worth visiting museums on Mondays?",
        "That makes sense to me.",
        "Draw up a packing list for a week away.",
    ),
    "held-out": (
        "You're a star, thank you!",
        "Alright, moving on.",
        "Makes sense.",
        "Evening!",
        "Which wine goes with salmon?",
        "Mind explaining inflation to me?",
        "Put together a playlist for a road trip.",
        "Shorten this paragraph for me.",
        "How come cats purr?",
        "Huh, I had no idea.",
        "Talk me through changing a tyre.",
        "I'm trying to understand how batteries age.",
        "That works for me.",
        "I could use a hint for this crossword.",
        "Ha, that made me laugh.",
        "Should one tip in Iceland?",
        "I'm not sure I follow you.",
        "Sketch out a budget for a small wedding.",
        "Let's get back to my first question.",
        "I want a recipe with lentils.",
    ),
}
BESIDE = {
    "dev": (
        ("I have a dog called Rex.", "I got a cat called Minka last week."),
        ("I love hiking.", "I love climbing now, too."),
        ("My brother lives in Geneva.", "I visited Lisbon last week."),
        ("My mother works as a nurse.", "My father works as a cook now."),
        ("I bought a tent.", "I bought a new sleeping bag yesterday."),
        ("I speak German at home.", "I started to learn Finnish."),
        ("I read the newspaper in the evening.", "I actually listen to podcasts in the evening, too."),
        ("My desk is by the window.", "My new chair is really comfortable."),
        ("I play tennis on Mondays.", "I also play chess on Wednesdays now."),
        ("I have a meeting with Tom on Tuesday.", "I have a meeting with Sara on Friday now."),
        ("My cousin Max has a boat.", "My cousin Lena has a new motorbike."),
        ("I cook pasta on weekdays.", "I cook fish on Sundays these days."),
        ("I live with my wife in a red house.", "I spent a week in Athens."),
        ("I work in an office downtown.", "I now share my desk with Priya."),
        ("My wife drives a Fiat.", "I now ride a Vespa in summer."),
        ("I'm allergic to cats.", "It turned out that my son is allergic to dogs."),
        ("My daughter goes to Hill School.", "My son has changed to Lake School."),
        ("I take vitamin D in winter.", "I take magnesium for my legs now."),
        ("I read Le Monde.", "I signed up for The Economist."),
        ("My doctor is on Main Street.", "I found a new dentist in Park Lane."),
        ("I play guitar in a band.", "I have joined a choir as of last week."),
        ("My mother is 70.", "My father turned 72."),
        ("I owe my landlord 300 euros.", "My landlord owes me 50 euros now."),
        ("I have a meeting with the bank at 9:00.", "I have a call with the insurance at 11:30 now."),
        ("My brother studies law in Ghent.", "My cousin moved to Ghent."),
        ("I have been to Peru.", "I have now been to Chile, too."),
        ("I watch football on Saturdays.", "I gave up watching the news."),
        ("I like my coffee black.", "I like my eggs soft these days."),
        ("My printer is a Canon.", "My new screen is a Dell."),
        ("I run in the park.", "I run a small shop now."),
        ("My savings are at the post office.", "I closed my old gym account."),
        ("We have two cats.", "We have three chickens now."),
        ("I wear glasses.", "I lost my sunglasses in Palermo."),
        ("I left school in 2005.", "I left my umbrella on the train."),
        ("I buy bread at the corner.", "I buy fish at the harbour now."),
        ("My team won on Sunday.", "My team has a new coach."),
    ),
    "held-out": (
        ("I water the tomatoes every morning.", "I planted cucumbers as well, they are doing great now."),
        ("My kitchen is painted white.", "We changed the bathroom to light grey."),
        ("My aunt runs a bakery in Salzburg.", "My uncle has just opened a bar in Vienna."),
        ("I swim twice a week.", "I now do yoga twice a week on top of that."),
        ("I'm reading a novel by Le Guin.", "I have also started a biography of Curie."),
        ("Our son is eight.", "Our daughter turned five."),
        ("I owe Jonas 40 euros.", "I owe Mira 25 euros now."),
        ("My vet is on Elm Street.", "My new optician is on Bay Street."),
        ("I drink my tea without sugar.", "These days I eat my porridge without sugar, too."),
        ("I wear a size 43 in boots.", "I'm now a size L in shirts."),
        ("My bike has a flat tyre.", "My car has a new battery."),
        ("I volunteer at the food bank.", "I joined the rescue team as a volunteer."),
        ("I flew to Madrid for a conference.", "I just came back from a wedding in Naples."),
        ("My Wi-Fi password is sunflower7.", "I've set the alarm code to 4471."),
        ("I'm teaching Emma to ride a bike.", "I'm now teaching Theo to swim."),
        ("I like the quiet of winter.", "I've come to like long summer evenings."),
    ),
}
"""What is said first, and later on the same topic: both hold."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One change. first, second: what was stated; stale, current: the values; ended: whether there is no new one."""

    attribute: str
    question: str
    first: str
    second: str
    stale: str
    current: str
    ended: bool


@dataclass(frozen=True, slots=True)
class PlantedConversation:
    """messages: (day from the first, role, text); facts: the statements in them, word for word; kinds: whether one is
    "stable", of a "change", or said "beside" another on one topic; changes: what changed."""

    person: str
    messages: tuple[tuple[int, str, str], ...]
    facts: tuple[str, ...]
    kinds: dict[str, str]
    changes: tuple[Planted, ...]


def conversations(
    attributes: Sequence[PlantedAttribute], wordings: str, count: int, seed: int
) -> list[PlantedConversation]:
    """wordings: the side that statements, changes and talk are worded on."""
    return [_conversation(attributes, wordings, f"person{seed}-{number}", seed) for number in range(count)]


def _conversation(attributes: Sequence[PlantedAttribute], wordings: str, person: str, seed: int) -> PlantedConversation:
    draw = random.Random(f"{person}/{wordings}/{seed}")
    chosen = draw.sample(list(attributes), min(6, len(attributes)))
    first: list[str] = []
    second: list[str] = []
    changes: list[Planted] = []
    for attribute in chosen:
        old, new = draw.sample(attribute.values, 2)
        ends = attribute.ends.get(wordings, ())
        ending = bool(ends) and draw.random() < 0.5
        first.append(draw.choice(attribute.states[wordings]).format(v=old))
        pool = ends if ending else attribute.changes[wordings]
        later = draw.choice(pool).format(v=new, old=old)
        second.append(later)
        changes.append(Planted(attribute.name, attribute.question, first[-1], later, old, new, ending))
    stable = draw.sample(STABLE[wordings], 4)
    (one, another), (third, fourth) = draw.sample(BESIDE["dev" if wordings == "seen" else wordings], 2)
    facts = (
        [*first[:3], stable[0], one, *first[3:], stable[1], third],
        [stable[2], *second[:3], another, stable[3], *second[3:], fourth],
    )
    messages: list[tuple[int, str, str]] = []
    for part, statements in enumerate(facts):
        for day, statement in enumerate(statements):
            words = [statement]
            if draw.random() < 0.4:
                words.insert(0, draw.choice(CHAT[wordings]))
            if draw.random() < 0.6:
                words.append(draw.choice(CHAT[wordings]))
            at = 60 * part + day
            messages += [(at, "user", " ".join(words)), (at, "assistant", "Noted! Anything else?")]
            if draw.random() < 0.5:
                messages += [(at, "user", draw.choice(CHAT[wordings])), (at, "assistant", "Of course.")]
    beside = [one, another, third, fourth]
    kinds = {
        **dict.fromkeys(first + second, "change"),
        **dict.fromkeys(stable, "stable"),
        **dict.fromkeys(beside, "beside"),
    }
    return PlantedConversation(person, tuple(messages), tuple(first + stable + beside + second), kinds, tuple(changes))
