"""Put the tables of this folder's JSON files into docs/asynchrony.md, so that no number is typed by hand.

python -m benchmarks.asynchrony.page
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.asynchrony.setting import HERE
from benchmarks.tables import filled, markdown, takes_nothing

PAGE = HERE.parent.parent / "docs" / "asynchrony.md"
Result = dict[str, Any]


def latency(results: Sequence[Result]) -> str:
    parts = []
    for result in results:
        compute = result["compute_seconds_per_step"]
        rows = [
            (
                arm,
                f"{statistics.median(result['seconds_per_step'][arm]):.2f} s",
                _spread(each),
                f"{each['of_which_hidden_latency']:.2f}x",
            )
            for arm, each in result["speedup"].items()
        ]
        parts.append(
            markdown((result["model"], "a step", "times as fast", "by hidden waits"), rows)
            + f"\n\nA step's compute is {compute:.2f} s, of which learning {result['learn_seconds_per_step']:.2f} s: without any "
            f"waits one core could be {result['bound_turns']:.1f}x as fast as the synchronous arm. {result['rounds']} rounds, "
            f"{result['steps_measured']} steps each, after {result['steps'] - result['steps_measured']} to fill the pipeline. "
            + _setting(result)
        )
    return "\n\n".join(parts)


def staleness_zero(results: Sequence[Result]) -> str:
    parts = []
    for result in results:
        rows = [
            (
                arm,
                f"{statistics.median(result['cpu_seconds_per_step'][arm]):.3f} s",
                f"{statistics.median(result['tokens_per_step'][arm]):.0f}",
                _spread(cost, 3),
            )
            for arm, cost in result["cost"].items()
        ]
        alone, whole, _ = (statistics.median(each) for each in result["cpu_seconds_per_step"].values())
        episodes = result["groups"] * result["members"]
        parts.append(
            markdown((result["model"], "CPU time of a step", "tokens", "times the cost"), rows)
            + f"\n\n{result['groups']} questions, {result['members']} answers each; {result['rounds']} rounds. To the group "
            f"sampler alone whole calls add {1000 * (whole - alone):.0f} ms a step, in which {episodes} episodes are made and "
            "rewarded. " + _setting(result)
        )
    return "\n\n".join(parts)


def lengths(results: Sequence[Result]) -> str:
    parts = []
    for result in results:
        rows = [
            (
                arm,
                f"{statistics.median([one['drawn_tokens_per_second'] for one in each['per_step']]):.0f}",
                _spread(each["speedup"]),
                _spread(each["speedup_in_cpu_seconds"]),
                f"{each['bound_speedup']:.2f}x",
                f"{100 * each['share_of_bound']:.0f} %",
                f"{statistics.median([one['tokens_per_decoding_step'] for one in each['per_step']]):.1f}",
                _measured(each, "lag_p95"),
                _measured(each, "trained_length"),
            )
            for arm, each in result["arms"].items()
        ]
        head = (
            result["model"],
            "tokens/s, end to end",
            "times as fast",
            "in CPU time",
            "bound",
            "of the bound reached",
            "tokens a decoding step",
            "lag",
            "mean length trained",
        )
        costs = {int(slots): cost["step"] for slots, cost in result["decoding_step_cpu_seconds"].items()}
        full = result["episodes_per_step"]
        parts.append(
            markdown(head, rows)
            + f"\n\n{full} sequences an update; a decoding step of all of them takes {1000 * costs[full]:.1f} ms, one of four "
            f"{1000 * costs[4]:.1f} ms, one of one {1000 * costs[1]:.1f} ms. {result['rounds']} rounds of "
            f"{result['steps_measured']} steps. " + _setting(result)
        )
    return "\n\n".join(parts)


def staleness(results: Sequence[Result]) -> str:
    (result,) = results
    rows = []
    for name, cell in result["cells"].items():
        objective, lag = name.split("/")
        rows.append(
            (
                objective,
                lag,
                f"{cell['lag_p95']:.1f}",
                str(cell["n"]),
                _paired(cell["score"]),
                _paired(cell["training_reward"]),
            )
        )
    head = (
        "objective",
        "bound",
        "lag measured",
        "seeds",
        "score (minus synchronous)",
        "reward over training (minus synchronous)",
    )
    rates = ", ".join(f"{name} {rate:g}" for name, rate in result["learning_rates"]["chosen"].items())
    return markdown(head, rows) + f"\n\nLearning rates: {rates}. " + _setting(result)


def equal_tokens(results: Sequence[Result]) -> str:
    (result,) = results
    lagged = any("longest_lag" in each for each in result["arms"].values())
    rows = [
        (
            arm,
            f"{each['mean']:.3f}",
            _difference(each["minus_plain"]) if arm != "plain" else "",
            f"{each['tokens']:.0f}",
            f"{each['updates']:.0f}",
            f"{each['decoding_steps']:.0f}",
            f"{each['trained_length']:.1f}",
            *([f"{each['longest_lag']:.0f}" if "longest_lag" in each else ""] if lagged else ()),
        )
        for arm, each in result["arms"].items()
    ]
    head = (
        "schedule",
        "score",
        "minus plain",
        "tokens",
        "updates",
        "decoding steps",
        "mean length trained",
        *(["longest lag"] if lagged else ()),
    )
    return markdown(head, rows) + f"\n\n{result['n']} seeds. " + _setting(result)


def predictors(results: Sequence[Result]) -> str:
    (result,) = results
    kinds = [
        (
            kind,
            each["tasks"],
            f"{each['median']:.0f}",
            f"{100 * each['cut']:.0f} %",
            f"{100 * each['between_prompts']:.0f} %",
        )
        for kind, each in result["kinds"].items()
    ]
    learned = result["cpu_seconds_to_learn_a_group"]
    told = [
        (
            name,
            *(_interval(each[scope]) for scope in ("mixed", "one kind at a time")),
            f"{1000 * learned[name]:.1f} ms" if name in learned else "",
        )
        for name, each in result["spearman"].items()
    ]
    head = ("prompts", "tasks", "median", f"cut at {result['longest']}", "variance between prompts")
    text = (
        f"{result['tasks']} tasks, {result['samples']} answers each, {result['folds']} folds. Learning is processor time after "
        "each group; ridges and neighbours are fitted when they are asked. "
    )
    return "\n\n".join(
        (
            markdown(head, kinds),
            markdown(("told by", "all kinds mixed", "one kind at a time", "learning"), told),
            text + _setting(result),
        )
    )


def orders(results: Sequence[Result]) -> str:
    (result,) = results
    columns = [(scope, slots, own) for scope, by in result["steps"].items() for slots, own in by.items()]
    names = [name for name in columns[0][2] if name not in ("as they came", "lengths known") and "planned" not in name]
    rows = [(name, *(_share(own[name]) for *_, own in columns)) for name in names]
    known = ("lengths known: steps", *(f"{own['lengths known']['steps']:.2f}" for *_, own in columns))
    made = result["made_up"]
    mean = "mean of the prompt known"
    by_share = [
        (f"{100 * float(share):.0f} %", f"{own['spearman']:.2f}", *(_share(each) for each in slots))
        for share, own in made["shares"].items()
        for slots in [[each[mean] for name, each in own.items() if name != "spearman"]]
    ]
    slots = [f"{name} slots" for name in result["steps"]["mixed"]]
    return "\n\n".join(
        (
            markdown(("longest first by", *(f"{scope}, {slots}" for scope, slots, _ in columns)), [*rows, known]),
            "Log-normal lengths, the mean of each prompt known:",
            markdown(("variance between prompts", "Spearman", *slots), by_share),
            f"{result['groups']} groups of {result['samples']} an update. Log-normal lengths have a median of {made['median']}, "
            f"a sigma of {made['sigma']:g} and {made['longest']} tokens at most; {made['updates']} updates.",
        )
    )


def memory(results: Sequence[Result]) -> str:
    (result,) = results
    own = [result["rows"][number] for number in sorted(result["rows"], key=int)]
    rows = [
        (
            each["way"],
            str(each["slots"]),
            f"{each['keys_and_values_bytes'] / 2**20:.0f} MB",
            f"{each['resident_peak_bytes'] / 2**20:.0f} MB",
            str(each["steps"]),
            f"{each['tokens_per_cpu_second']:.0f}",
        )
        for each in own
    ]
    head = ("way", "answers at once", "keys and values", "resident, beyond the model", "decoding steps", "tokens/s")
    before = statistics.median(each["resident_before_bytes"] for each in own)
    return (
        markdown(head, rows)
        + f"\n\n{result['model']}, {result['members']} answers of {result['lengths']['tokens']} tokens in all, a prompt of "
        f"{result['prompt']}; the model itself has {before / 2**20:.0f} MB resident. Tokens per processor second. "
        + _setting(result)
    )


def _measured(arm: dict[str, Any], name: str) -> str:
    return f"{statistics.fmean(one[name] for one in arm['per_step']):.1f}" if name in arm["per_step"][0] else ""


def kills(results: Sequence[Result]) -> str:
    return "\n\n".join(map(_kills_of, results))


def _interval(each: dict[str, float]) -> str:
    return f"{each['mean']:.2f} ({each['low']:.2f} to {each['high']:.2f})"


def _share(each: dict[str, float]) -> str:
    return f"{100 * each['closed']:.0f} % ({100 * each['low']:.0f} to {100 * each['high']:.0f})"


def _kills_of(result: Result) -> str:
    parts = [f"{result['model']}:"]
    if serial := result.get("serial"):
        parts.append(
            f"`serial`: {serial['kills']} kills over {serial['runs']} runs (up to {serial['most_kills_of_one_run']} of one run): "
            "weights, optimiser, memory (content hash, journal position) and metric rows "
            f"{'identical' if serial['identical'] else 'NOT identical'} to a run that was left alone."
        )
    if overlap := result.get("overlap"):
        parts.append(
            f"`overlap`: {overlap['kills']} kills over {overlap['runs']} runs; "
            f"{overlap['groups_finished_and_untrained_at_kills']} groups were finished and untrained when it struck: "
            f"{overlap['lost']} lost, {overlap['trained_twice']} trained "
            f"twice, {overlap['missing_from_steps']} missing from an update."
        )
    return "\n".join(parts) + f" {_setting(result)}"


def drafter(results: Sequence[Result]) -> str:
    (result,) = results
    if "gain" not in result:
        return "What is kept, or what a pass costs, is not measured yet: run the first two of the commands."
    one = result["gain"]["1"]
    rows = []
    for kind, own in result["kinds"].items():
        for name, each in own["drafters"].items():
            best = {count: max(by) for count, by in one[kind][name].items()}
            k = {count: by.index(max(by)) + 1 for count, by in one[kind][name].items()}
            rows.append(
                (
                    kind,
                    name,
                    " / ".join(f"{100 * share:.0f} %" for share in each["kept_at_position"]),
                    " / ".join(f"{value:.2f}" for value in each["tokens_per_pass"][1:]),
                    *(f"**{best[count]:.2f}x** ({k[count]})" for count in best),
                )
            )
    head = (
        "answers",
        "drafter",
        "kept at positions 1 to 4",
        "tokens a pass, 1 to 4 proposals",
        *(f"times as fast, {count} left" for count in one[next(iter(one))]["n-gram"]),
    )
    training = result["training"]
    covered = ", ".join(f"{kind} {100 * own['covered']:.0f} %" for kind, own in result["kinds"].items())
    return (
        markdown(head, rows, left=2)
        + f"\n\nIn brackets the best number of proposals. {result['model']}; one thread, processor seconds. Heads have "
        f"{training['parameters'] / 1e6:.1f} million weights and propose among {training['words']} tokens, which are so much of "
        f"what is drawn: {covered}. They were trained for {training['updates']} updates, "
        f"{training['cpu_seconds']['served head']:.0f} processor seconds, on {training['tokens']['static head']} (static) and "
        f"{training['tokens']['served head']} (served) tokens. "
        + _setting(result | {"machine": result["machine_of_heads"]})
    )


def drafter_cost(results: Sequence[Result]) -> str:
    (result,) = results
    rows, notes = [], []
    for threads, measured in result.get("seconds", {}).items():
        unit = "lowest_cpu" if threads == "1" else "lowest"
        cost = {name: each[unit] for name, each in measured["passes"].items()}
        for count in sorted({name.split("/")[0] for name in cost}):
            one = min(each for arm, each in cost.items() if arm.startswith(f"{count}/") and "drafted" not in arm)
            rows.append(
                (
                    threads,
                    count,
                    f"{1000 * cost[f'{count}/present']:.1f} ms",
                    *(f"{cost[f'{count}/checked/{k}'] / one:.2f}" for k in range(result["most"] + 1)),
                    *(f"{cost[f'{count}/drafted/{k}'] / one:.2f}" for k in (1, result["most"])),
                )
            )
        notes.append(f"{threads} threads: " + _setting(measured))
    head = ("threads", "sequences", "one token", *(f"pass over {k + 1}" for k in range(result["most"] + 1)))
    drafting = tuple(f"proposing {k}" for k in (1, result["most"]))
    return markdown((*head, *drafting), rows) + "\n\n" + "\n".join(notes)


def few_left(results: Sequence[Result]) -> str:
    (result,) = results

    def share(own: dict[str, float]) -> str:
        return f"{100 * own['mean']:.1f} % ({100 * own['low']:.1f} to {100 * own['high']:.1f})"

    rows = [
        (lengths, way, *(share(own[name]) for name in ("at_most_1", "at_most_2", "saved", "saved_if_free")))
        for lengths, ways in result["rows"].items()
        for way, own in ways.items()
    ]
    head = (
        "answers",
        "way",
        "steps with 1 left",
        "steps with 1 or 2 left",
        "a drafter saves of decoding",
        "a perfect one would",
    )
    faster = result["times_as_fast"]
    six = ", ".join(f"{kind} {100 * own['saved']['mean']:.1f} %" for kind, own in result["groups_of_6"].items())
    return (
        markdown(head, rows, left=2)
        + f"\n\nUpdates of {result['groups']} groups of {result['members']}. With one left a drafter makes steps "
        f"{faster['1']:.2f} times as fast, with two {faster['2']:.2f} times: the best drafter of each kind in the first "
        "table. A perfect one makes them cost nothing. "
        f"Intervals over {result['resamples']} times {result['updates']} updates of resampled prompts. "
        f"A group of {result['members']} is drawn with replacement from six answers; whole calls of the six "
        f"themselves save: {six}. " + _setting(result)
    )


def drafter_policy(results: Sequence[Result]) -> str:
    result = results[0].get("policy")
    if result is None:
        return "Not measured yet: run the first of the commands."
    rows = []
    for row in result["rows"]:
        for name, own in row["by_head"].items():
            one, two = own["1"], own["2"]
            rows.append(
                (
                    row["step"],
                    name,
                    f"{row['reward']['mean']:.2f}",
                    f"{row['divergence']['mean']:.2f}",
                    _percent(row["first_kept"][name]),
                    _within(one["tokens_per_pass"]),
                    "" if name == "static" else _difference(one["more_than_static"], 2),
                    _within(one["times_as_fast"]),
                    _within(two["times_as_fast"]),
                )
            )
    head = (
        "updates of the policy",
        "head",
        "reward",
        "divergence",
        "first proposal kept",
        "tokens a pass, 3 proposals",
        "more than static",
        "times as fast, 1 left",
        "2 left",
    )
    spent = result["rows"][-1]["cpu_seconds"]
    return (
        markdown(head, rows, left=2)
        + f"\n\n{results[0]['held_out']} held-out prompts of {results[0]['prompt_tokens']} tokens, {results[0]['passes']} passes "
        f"each; one run. Processor seconds: sampling {spent['rollouts']:.0f}, learning {spent['learning']:.0f}, the head that "
        f"follows {spent['head']:.0f}. " + _setting(result)
    )


def drafter_traffic(results: Sequence[Result]) -> str:
    result = results[0].get("traffic")
    if result is None:
        return "Not measured yet: run the second of the commands."
    arms = ("static", "from nothing", "accepted alone", "frozen")
    rows = [
        (
            row["batch"],
            row["kind"],
            *(_percent(row["first_kept"][name]) if name in row["first_kept"] else "" for name in arms),
        )
        for row in result["rows"]
    ]
    held_out = []
    for when, measured in result["held_out"].items():
        for name, own in measured["by_head"].items():
            (other,) = (each for each in own["1"] if each.startswith("more_than_"))
            beside = other.removeprefix("more_than_")
            held_out.append(
                (
                    f"{measured['kind']}, {when}",
                    name,
                    _within(own["1"]["tokens_per_pass"]),
                    "" if name == beside else f"{_difference(own['1'][other], 2)} ({beside})",
                    _within(own["1"]["times_as_fast"]),
                    _within(own["2"]["times_as_fast"]),
                )
            )
    head = ("held-out prompts", "head", "tokens a pass, 3 proposals", "more than", "times as fast, 1 left", "2 left")
    spent = result["cpu_seconds"]
    return (
        markdown(("batch", "answers", *arms), rows, left=2)
        + "\n\n"
        + markdown(head, held_out, left=2)
        + f"\n\n{result['requests']} requests a batch, {result['updates_per_batch']} updates of a head "
        f"after each; {results[0]['held_out']} held-out prompts of each kind, {results[0]['passes']} passes each; one "
        f"run. Processor seconds: "
        f"serving {spent['serving']:.0f}, training one head {spent['head']:.0f}. " + _setting(result)
    )


def drafter_claims(results: Sequence[Result]) -> str:
    """Of TLT and Aurora, what is claimed beside what was measured here."""
    taught, few = results
    rows = _claims_of_tlt(taught["policy"]["rows"], few)
    if "at the end" in taught.get("traffic", {}).get("held_out", {}):
        rows += _claims_of_aurora(taught["traffic"])
    return markdown(("claim", "held here", "measured"), rows, left=3)


def _claims_of_tlt(policy: Sequence[Result], few: Result) -> list[tuple[str, str, str]]:
    left = few["times_as_fast"]
    recorded = [ways for lengths, ways in few["rows"].items() if lengths != "log-normal lengths"]
    saves = [100 * own["saved"]["mean"] for ways in recorded for own in ways.values()]
    tail = 100 * few["rows"]["log-normal lengths"]["whole calls, 2 prompts"]["saved"]["mean"]
    ended = policy[-1]
    before = policy[0]["by_head"]["static"]["1"]["tokens_per_pass"]
    static, followed, control = (ended["by_head"][name]["1"] for name in ("static", "followed", "control"))
    after = static["tokens_per_pass"]
    spent = ended["cpu_seconds"]
    share = 100 * spent["head"] / (spent["rollouts"] + spent["learning"])
    return [
        (
            "TLT: the samples are those of the model",
            "yes",
            "Exactly, over all proposals of small distributions; 100,000 draws do not differ either.",
        ),
        (
            "TLT: a drafter pays when few answers are left, so it is used by their number",
            "yes",
            f"With the best drafter {left['1']:.2f} times as fast with one left, {left['2']:.2f} with two, {left['4']:.2f} "
            "with four.",
        ),
        (
            "TLT: the drafter has to follow the policy",
            "not seen" if after["mean"] >= before["low"] else "yes",
            f"After {ended['step']} updates ({ended['divergence']['mean']:.2f} nats a token from the first policy) a head that "
            f"is not trained any more has {_within(after)} tokens a pass, before {_within(before)}. A head that follows has "
            f"{_difference(followed['more_than_static'], 2)} more; one that goes on with the first policy's texts has "
            f"{_difference(control['more_than_static'], 2)} more.",
        ),
        (
            "TLT: its training is free, on workers that wait",
            "no",
            f"On one core nothing waits: it takes {share:.0f} % of the time of sampling and learning.",
        ),
        (
            "TLT: training over 1.7 times as fast",
            "no",
            f"A drafter would save {min(saves):.1f} to {max(saves):.1f} % of decoding with recorded lengths, {tail:.0f} % with "
            "log-normal ones.",
        ),
    ]


def _claims_of_aurora(traffic: Result) -> list[tuple[str, str, str]]:
    day, end = (
        {name: own["1"] for name, own in traffic["held_out"][when]["by_head"].items()}
        for when in ("before the change", "at the end")
    )
    first = traffic["rows"][0]["kind"]
    batches = sum(row["kind"] == first for row in traffic["rows"])
    learned, static, frozen, alone = (
        end[name]["tokens_per_pass"] for name in ("from nothing", "static", "frozen", "accepted alone")
    )
    return [
        (
            "Aurora: a drafter that knew nothing makes serving 1.5 times as fast from the first day",
            "in part",
            f"After {batches * traffic['requests']} requests it is {_within(day['from nothing']['times_as_fast'])} times as "
            f"fast with one left; a static head, trained before, {_within(day['static']['times_as_fast'])}.",
        ),
        (
            "Aurora: learning on when traffic changes is worth 1.25 times over a static drafter",
            "in part",
            f"On the new traffic it has {_within(learned)} tokens a pass, the static head {_within(static)}, one frozen at the "
            f"change {_within(frozen)}: {learned['mean'] / static['mean']:.2f} and "
            f"{learned['mean'] / frozen['mean']:.2f} times.",
        ),
        (
            "Aurora: refused proposals teach, too",
            "not seen" if alone["high"] >= learned["mean"] else "yes",
            f"Where they teach nothing, {_within(alone)} tokens a pass in place of {_within(learned)}.",
        ),
    ]


def _percent(share: dict[str, float]) -> str:
    return f"{100 * share['mean']:.1f} %"


def _within(own: dict[str, float]) -> str:
    return f"{own['mean']:.2f} ({own['low']:.2f} to {own['high']:.2f})"


def _paired(cell: dict[str, Any]) -> str:
    minus = cell["minus_synchronous"]
    own = f"{cell['mean']:.3f}"
    return own if minus["low"] == minus["high"] == 0 else f"{own} ({_difference(minus)})"


def _difference(minus: dict[str, float], digits: int = 3) -> str:
    return f"{minus['mean']:+.{digits}f}, {minus['low']:+.{digits}f} to {minus['high']:+.{digits}f}"


def _spread(ratio: dict[str, float], digits: int = 2) -> str:
    return f"**{ratio['median']:.{digits}f}x** ({ratio['lowest']:.{digits}f} to {ratio['highest']:.{digits}f})"


def _setting(result: Result) -> str:
    machine = result["machine"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} thread a side, load average "
        f"{machine['load_average_at_start']:.1f} at the start; torch "
        f"{machine['versions']['torch']}; revision {machine['revision']}, {machine['measured_at'][:10]}."
    )


TABLES: dict[str, tuple[Callable[[Sequence[Result]], str], tuple[str, ...]]] = {
    "staleness_zero": (staleness_zero, ("staleness_zero.json", "staleness_zero_135m.json")),
    "latency": (latency, ("latency.json", "latency_135m.json")),
    "lengths": (lengths, ("lengths.json", "lengths_135m.json")),
    "staleness": (staleness, ("staleness.json",)),
    "equal_tokens": (equal_tokens, ("equal_tokens.json",)),
    "predictors": (predictors, ("predictors.json",)),
    "orders": (orders, ("predictors.json",)),
    "memory": (memory, ("memory.json",)),
    "drafter": (drafter, ("drafter.json",)),
    "drafter-claims": (drafter_claims, ("drafter_taught.json", "few_left.json")),
    "drafter-policy": (drafter_policy, ("drafter_taught.json",)),
    "drafter-traffic": (drafter_traffic, ("drafter_taught.json",)),
    "few-left": (few_left, ("few_left.json",)),
    "drafter-cost": (drafter_cost, ("drafter.json",)),
    "kills": (kills, ("kills.json", "kills_135m.json")),
}


def main() -> None:
    takes_nothing(__doc__)
    for name, (render, files) in TABLES.items():
        found = [json.loads((HERE / each).read_text()) for each in files if (HERE / each).exists()]
        if not found:
            print(f"{files[0]} is missing: run `python -m benchmarks.asynchrony.{files[0].removesuffix('.json')}`")
            continue
        filled(PAGE, name, render(found))


if __name__ == "__main__":
    main()
