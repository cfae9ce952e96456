"""Conversations with planted changes: what a person says of themselves, and later says anew, among questions, thanks and wishes.

Every attribute and every wording is on one side, "dev" or "held-out". The rules of `keepworth.memory.policy.claims` were written
against the dev side alone; the held-out side was written afterwards, and the rules were not touched for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

SIDES = ("dev", "held-out")


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
            "held-out": (
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
            "held-out": (
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
            "held-out": ("I earn my living at {v}.", "My day job is with {v}.", "I'm an engineer over at {v}."),
        },
        {
            "dev": (
                "I started a new job at {v} last week.",
                "I work at {v} now.",
                "I left {old} and joined {v}.",
                "I've switched from {old} to {v} for work.",
                "My new employer is {v}.",
            ),
            "held-out": (
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
            "held-out": (
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
            "held-out": (
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
            "held-out": (
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
            "held-out": (
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
            "held-out": (
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
            "held-out": (
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
            "held-out": (
                "{v} give me a bad allergic reaction.",
                "I get hives from {v}.",
                "I can't eat {v}, allergies.",
            ),
        },
        {
            "dev": ("It turns out that I'm allergic to {v}, not {old}.",),
            "held-out": ("The test says the allergy is to {v} and not to {old}.",),
        },
        {
            "dev": (
                "I'm no longer allergic to {old}.",
                "I'm not allergic to {old} any more.",
                "I'm not allergic to {old} anymore, my doctor says.",
            ),
            "held-out": (
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
            "held-out": ("I eat {v} food only.", "My diet is {v}.", "I've been {v} for years."),
        },
        {
            "dev": ("I'm {v} now.", "I've gone {v}.", "I'm not {old} any more, I'm {v}."),
            "held-out": ("I decided to go {v}.", "My diet is {v} these days.", "I switched to a {v} diet."),
        },
        {
            "dev": ("I'm no longer {old}.", "I stopped being {old}."),
            "held-out": ("I gave up being {old}.", "I eat everything again, being {old} is over for me."),
        },
    ),
    PlantedAttribute(
        "age",
        ("29", "34", "41", "52", "38", "47"),
        "How old is the user?",
        {
            "dev": ("I'm {v} years old.", "I am {v}."),
            "held-out": ("My age is {v}.", "I'm {v}, by the way.", "I celebrated my {v}th birthday."),
        },
        {
            "dev": ("I turned {v} yesterday.", "I'm {v} years old now.", "I just turned {v}."),
            "held-out": (
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
            "held-out": (
                "My sister has a house in {v}.",
                "My sister is based in {v}.",
                "{v} is where my sister lives.",
            ),
        },
        {
            "dev": ("My sister moved to {v}.", "My sister lives in {v} now.", "My sister has moved from {old} to {v}."),
            "held-out": (
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
            "held-out": (
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
            "held-out": (
                "They shifted my dentist appointment to {v}.",
                "The dentist can only see me on {v}, not on {old}.",
                "My dentist appointment got pushed to {v}.",
            ),
        },
    ),
)

HELD_OUT = (
    PlantedAttribute(
        "gym",
        ("Fitbase", "Ironworks", "Zenhall", "Corefit", "Uptown Gym"),
        "Which gym does the user go to?",
        {
            "dev": ("My gym is {v}.", "I go to {v} for training."),
            "held-out": ("I work out at {v}.", "I have a membership at {v}."),
        },
        {
            "dev": ("My gym is {v} now.", "I switched from {old} to {v} for training.", "My new gym is {v}."),
            "held-out": (
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
            "held-out": ("There is a {v} in my garage.", "I get around in a {v}."),
        },
        {
            "dev": ("I drive a {v} now.", "My new car is a {v}.", "I sold my {old} and drive a {v} now."),
            "held-out": (
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
            "held-out": ("I take {v} lessons after work.", "My evening class is {v}."),
        },
        {
            "dev": (
                "I study {v} in the evenings now instead of {old}.",
                "I'm not learning {old} any more, I'm learning {v}.",
            ),
            "held-out": (
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
            "held-out": ("I'm a patient of {v}.", "{v} is the one who looks after me."),
        },
        {
            "dev": ("My new doctor is {v}.", "My doctor is {v} now.", "My doctor has changed, it's {v} now."),
            "held-out": (
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
            "held-out": ("I'm a {v} fan.", "I never miss a match of {v}."),
        },
        {
            "dev": ("I support {v} now instead of {old}.", "My football team is {v} now."),
            "held-out": (
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
            "held-out": ("I can spend {v} on the trip.", "The trip may cost {v}."),
        },
        {
            "dev": ("My budget for the trip is now {v}.", "My trip budget has changed to {v}."),
            "held-out": (
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
        {"dev": ("I smoke {v}.",), "held-out": ("I enjoy {v} after dinner.", "I'm a smoker of {v}.")},
        {"dev": ("I smoke {v} now instead of {old}.",), "held-out": ("I moved on from {old} to {v}.",)},
        {
            "dev": ("I stopped smoking {old}.", "I no longer smoke {old}."),
            "held-out": ("I kicked the habit of {old}.", "I haven't touched {old} in months."),
        },
    ),
    PlantedAttribute(
        "wake-up time",
        ("5:30", "6:15", "7:00", "7:45", "8:30"),
        "When does the user get up?",
        {
            "dev": ("I wake up at {v}.", "My alarm is set for {v}."),
            "held-out": ("I'm out of bed by {v}.", "My day begins at {v}."),
        },
        {
            "dev": ("I wake up at {v} now.", "My alarm is set for {v} now."),
            "held-out": (
                "I'm out of bed by {v} these days.",
                "I sleep in until {v} now.",
                "My day begins at {v} since the new year.",
            ),
        },
    ),
)
"""Attributes that the rules were not written against. Their "dev" wordings are put like those of the others."""

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
    "held-out": (
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
    "held-out": (
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
}


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
    "stable" or of a change; changes: what changed."""

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
    facts = [*first[:3], stable[0], *first[3:], stable[1]], [stable[2], *second[:3], stable[3], *second[3:]]
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
    kinds = {**dict.fromkeys(first + second, "change"), **dict.fromkeys(stable, "stable")}
    return PlantedConversation(person, tuple(messages), tuple(first + stable + second), kinds, tuple(changes))
