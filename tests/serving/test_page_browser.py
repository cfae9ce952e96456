"""The page over a memory in a browser: every view at every width, light and dark, by mouse and by keys, and hostile texts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page.world import fill
from keepworth import policy
from keepworth.memory.evaluations import Evaluation, reward_by
from keepworth.serving.access import Access, new_access
from keepworth.serving.memory_server import MemoryServer
from tests.serving.chromium import browser, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

WIDTHS = (390, 830, 1280, 1920)
UNSEEN = "\u202egnp.exe\u202c \u2066x\u2069 \u200b"
SCRIPT = f"<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> {UNSEEN}"
LONG = "w" * 1_000_000
VIEWS = ("overview", "memory", "memory/{m1}", "memory?q=router", "review", "episodes", "episodes/{episode}")


class Served:
    """server; ids of what is in it."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        memory = server.memories.of(Access("test")).memory
        self.memory = memory
        memory.add(SCRIPT, user_id="eve\u200d", source="<b>bold</b>", metadata={"<i>": ["</script>"]})
        memory.add(LONG, user_id="eve\u200d")
        memory.add("line\n" * 400 + "ש\u05dc\u05d5\u05dd مرحبا", user_id="eve\u200d")
        fill(memory, episodes=160)
        self.ids = {"m1": "m1", "episode": memory.episodes()[-1]}
        with memory.episode(SCRIPT, user_id="eve\u200d") as episode:
            episode.search(SCRIPT)
            episode.reward(0.5, by="<b>")
        server.tokens.add(new_access(name="<b>agent</b>", user_id="ana", roles=("read",)))

    def token(self, *roles: str, **bounds: str) -> str:
        return self.server.tokens.add(new_access(roles=roles or ("read",), **bounds))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file, explores = tmp_path_factory.mktemp("page") / "a.mem", policy("default", withhold=0.3, budget=1.0)
    with MemoryServer(file, encoder="hashing", seed=1, scan=None, policy=explores) as server:
        yield Served(server)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


class Visit:
    """A tab of somebody who signed in. Whatever the console says is a failure."""

    def __init__(self, chromium: Any, served: Served, token: str = "", **options: Any) -> None:
        self.context = chromium.new_context(viewport={"width": options.pop("width", 1280), "height": 900}, **options)
        self.page, self.served = self.context.new_page(), served
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(15_000)
        self.page.goto(f"{served.server.url}/#token={token or served.server.token}")
        self.page.press("#token", "Enter")  # whoever opened the address says that it is theirs
        self.page.wait_for_selector("#views a")

    def go(self, view: str) -> None:
        self.page.goto(f"{self.served.server.url}/#/{view.format(**self.served.ids)}")
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_load_state("networkidle")
        self.until("!document.querySelector('[aria-busy=true]') && document.querySelector('main').children.length > 0")

    def until(self, expression: str) -> None:
        """The page's policy forbids what `wait_for_function` does."""
        end = time.monotonic() + 15
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, expression
            self.page.wait_for_timeout(20)

    def close(self) -> None:
        self.context.close()
        assert self.said == []
        assert [each for each in self.asked if not each.startswith(self.served.server.url)] == []


@pytest.fixture
def visit(chromium: Any, served: Served) -> Iterator[Visit]:
    with closing(Visit(chromium, served)) as made:
        yield made


def violations(page: Any) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['target']} {node['failureSummary']}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_and_has_no_barrier(chromium: Any, served: Served, width: int, scheme: str) -> None:
    visit = Visit(chromium, served, width=width, color_scheme=scheme, reduced_motion="reduce")
    for view in VIEWS:
        visit.go(view)
        wide = visit.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{view} is {wide} wide"
        lists = "[...document.querySelectorAll('.rows, .detail')]"
        inside = visit.page.evaluate(f"{lists}.filter(e => e.scrollWidth > e.clientWidth + 1).length")
        assert inside == 0, f"{view} scrolls sideways inside"
        assert violations(visit.page) == [], view
    visit.close()


def test_reward_source_is_taken_back_with_the_admin_role(chromium: Any, visit: Visit, served: Served) -> None:
    scored = Evaluation("helpful", 0.5, targets=(served.memory.episodes()[0],))
    reward_by(served.memory, [scored, Evaluation("helpful", 9.0, targets=scored.targets)])
    take, page = "[aria-label='Take back evaluation:helpful']", visit.page
    visit.go("overview")
    row = page.locator("tr", has_text="evaluation:helpful")
    assert "1 had no score that is one" in row.inner_text()
    page.click(take)
    page.click("dialog >> text=Take it back")
    visit.until(f"!document.querySelector({take!r})")
    assert row.locator("td").nth(1).inner_text() == "0"
    page.click("text=Undo the undo")
    visit.until(f"document.querySelector({take!r})")
    assert row.locator("td").nth(1).inner_text() == "1"
    with closing(Visit(chromium, served, served.token("read"))) as reader:
        reader.go("overview")
        assert reader.page.locator("h2", has_text="Where rewards came from").count() == 1
        assert reader.page.locator("text=Take back").count() == 0


def test_the_token_leaves_the_address_and_stays_in_the_tab(visit: Visit, served: Served) -> None:
    page = visit.page
    assert "kw_" not in page.url
    assert page.evaluate("Object.values(sessionStorage)") == [served.server.token]
    assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
    page.reload()
    page.wait_for_selector("#views a")
    page.click("text=Sign out")
    assert page.inner_text("h1") == "Sign in"
    assert page.evaluate("Object.values(sessionStorage)") == []
    visit.said.clear()
    page.fill("#token", "kw_wrong")
    page.press("#token", "Enter")
    page.wait_for_selector(".problem")
    assert "missing, wrong or expired" in page.inner_text(".problem")
    assert all("401" in each for each in visit.said), "the browser says itself that it was refused"
    visit.said.clear()
    page.fill("#token", served.server.token)
    page.press("#token", "Enter")
    page.wait_for_selector("#views a")


def test_link_with_a_foreign_token_asks_before_signing_in(visit: Visit, served: Served) -> None:
    page, theirs = visit.page, served.token("read", user_id="mallory")
    page.goto(f"{served.server.url}/#token={theirs}")
    page.wait_for_selector("text=only if that address is your own")
    assert page.evaluate("Object.values(sessionStorage)") == [served.server.token]
    assert "kw_" not in page.url
    page.click("text=Stay signed in as before")
    page.wait_for_selector("#views a")
    page.goto(f"{served.server.url}/#token={theirs}")
    page.click("button[type=submit]")
    page.wait_for_selector("text=mallory")


@pytest.mark.parametrize("behind", ["#token=%zz", "#/memory/%zz"])
def test_malformed_percent_encoding_still_shows_a_page(visit: Visit, behind: str) -> None:
    visit.page.goto("about:blank")
    visit.page.goto(f"{visit.served.server.url}/{behind}")
    visit.page.wait_for_selector("main h1, main .problem, main input")
    visit.page.wait_for_load_state("networkidle")
    visit.said.clear()  # the browser says itself that there is no such item


def test_page_offers_only_permitted_actions(chromium: Any, served: Served) -> None:
    for roles in (("read", "write", "reward"), ("read", "write", "reward", "admin")):
        visit = Visit(chromium, served, served.token(*roles))
        assert visit.page.locator("#views a").all_inner_texts() == ["Overview", "Memory", "Review", "Episodes"]
        visit.go("memory/m4" if "admin" in roles else "memory")
        assert bool(visit.page.locator("button:has-text('Undo')").count()) == ("admin" in roles)
        visit.close()
    visit = Visit(chromium, served, served.token("read", "admin", user_id="ana"))
    visit.go("memory")
    assert "ana" in visit.page.inner_text("#who")
    assert visit.page.locator("input[name=user_id]").count() == 0
    visit.close()


def test_a_token_that_may_not_read_is_told(chromium: Any, served: Served) -> None:
    page = chromium.new_page()
    page.goto(f"{served.server.url}/#token={served.token('write')}")
    page.press("#token", "Enter")
    page.wait_for_selector(".problem")
    assert "role read" in page.inner_text(".problem")
    page.close()


def test_hostile_texts_are_shown_as_data(visit: Visit) -> None:
    page = visit.page
    for view in ("memory", "memory/m1", "memory?q=script+alert", "episodes", "memory/m3"):
        visit.go(view)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img, main b:has-text('bold')").count() == 0
    visit.go("memory/m1")
    text = page.inner_text(".detail .text")
    assert "<script>window.hacked = 1</script>" in text
    named = [page.locator(".detail .text .unseen").nth(place).inner_text() for place in range(5)]
    assert named == ["U+202E", "U+202C", "U+2066", "U+2069", "U+200B"]
    assert "<b>bold</b>" in page.inner_text(".detail article")
    visit.go("memory/m2")
    assert len(page.inner_text(".detail .text")) < 5_000
    page.click("text=Show all 1,000,000 characters")
    visit.until("document.querySelector('.detail .text').textContent.length >= 1000000")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_keys_lead_everywhere(visit: Visit) -> None:
    page = visit.page
    visit.go("memory")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("router")
    page.keyboard.press("Enter")
    visit.until("location.hash.includes('q=router')")
    visit.settle()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    focused = "document.activeElement.dataset.id"
    page.keyboard.press("j")
    first = page.evaluate(focused)
    page.keyboard.press("j")
    second = page.evaluate(focused)
    page.keyboard.press("k")
    assert page.evaluate(focused) == first != second
    page.keyboard.press("Enter")
    page.wait_for_selector(".detail article")
    assert page.inner_text(".detail p.meta b") == first
    assert "Why it was found" in page.inner_text(".detail")
    page.keyboard.press("Escape")
    visit.until("!document.querySelector('.detail article')")
    assert page.evaluate(focused) == first
    page.keyboard.press("?")
    assert page.inner_text("dialog h2") == "Keys"
    page.keyboard.press("Escape")
    visit.until("!document.querySelector('dialog')")  # it is taken away by an event that comes after the key
    page.evaluate("document.body.focus()")
    page.keyboard.press("Tab")


def test_search_key_searches_episodes_on_their_view(visit: Visit) -> None:
    page = visit.page
    visit.go("episodes")
    before = page.locator(".rows-list a").count()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "words"
    task = page.locator(".rows-list a .question").first.inner_text()
    page.keyboard.type(task.upper()[:40])
    page.keyboard.press("Enter")
    visit.until("location.hash.includes('words=')")
    visit.settle()
    assert 0 < page.locator(".rows-list a").count() <= before
    assert task in page.locator(".rows-list a .question").all_inner_texts()
    visit.go("episodes?words=nothing-has-this-word")
    assert "No episode has these words" in page.inner_text("main")


def test_rows_beyond_the_first_page_are_a_key_away(visit: Visit) -> None:
    visit.go("episodes")
    assert visit.page.locator(".rows-list a").count() == 50
    for _ in range(51):
        visit.page.keyboard.press("j")
        visit.page.wait_for_timeout(5)
    visit.until("document.querySelectorAll('.rows-list a').length > 50")


def test_a_change_is_undone_after_a_question_and_brought_back(visit: Visit) -> None:
    page, memory = visit.page, visit.served.memory
    note = memory.add("Bo drinks tea", user_id="bo")
    memory.update(note.id, "Bo drinks coffee")
    visit.go(f"memory/{note.id}")
    page.locator("summary", has_text="changes, the last on").click()  # the history is folded, for it is long
    undo = page.locator(".history button").first
    undo.click()
    assert "Bo drinks coffee" in page.inner_text("dialog")
    page.click("dialog >> text=Keep it")
    assert memory.get(note.id).text == "Bo drinks coffee"
    undo.click()
    page.click("dialog >> text=Undo the change")
    page.wait_for_selector("#news >> text=Undone")
    assert memory.get(note.id).text == "Bo drinks tea"
    visit.until("document.querySelector('.detail .text')?.textContent === 'Bo drinks tea'")
    page.click("#news >> text=Undo the undo")
    visit.until("document.querySelector('.detail .text')?.textContent === 'Bo drinks coffee'")
    assert memory.get(note.id).text == "Bo drinks coffee"


def test_a_note_is_retired_after_a_review_and_brought_back(visit: Visit, served: Served) -> None:
    page, memory = visit.page, served.memory
    item = memory.add("The modem of the hall is loud")
    visit.go("review")
    note = page.locator("li.finding", has_text=item.text)
    note.get_by_role("button", name=f"Retire {item.id}").click()
    note.locator("text=retired").wait_for()
    assert memory.get(item.id).deleted
    assert page.evaluate("document.activeElement.textContent") == "Undo", "the keyboard goes on where it was"
    page.keyboard.press("Enter")
    note.get_by_role("button", name=f"Pin {item.id}").click()
    note.locator("text=pinned").wait_for()
    assert (memory.get(item.id).deleted, memory.get(item.id).pinned) == (False, True)
    visit.go("overview")
    visit.go("review")
    section = page.locator("section", has=page.get_by_role("heading", name="Always shown"))
    section.get_by_role("button", name=f"Undo {item.id}").click()
    page.locator("section", has=page.get_by_role("heading", name="Never needed")).get_by_text(item.text).wait_for()
    assert memory.get(item.id).metadata == {}
    memory.delete(item.id)


def test_review_offers_no_choices_to_readers(chromium: Any, served: Served) -> None:
    with closing(Visit(chromium, served, served.token("read"))) as visit:
        visit.go("review")
        assert visit.page.locator("li.finding").count() > 2
        assert visit.page.locator(".choices button").count() == 0


def test_the_first_steps_are_told(chromium: Any, tmp_path: Path) -> None:
    with MemoryServer(tmp_path / "a.mem", encoder="hashing") as server:
        served = Served.__new__(Served)
        served.server, served.ids = server, {}
        reader = server.tokens.add(new_access(roles=("read",)))
        visit, bound = Visit(chromium, served), Visit(chromium, served, reader)

        def text(of: Visit, view: str = "overview") -> str:
            of.go(view)
            of.page.reload()
            of.settle()
            said = of.page.inner_text("main")
            assert not re.search(r"\b(null|undefined|NaN)\b", said), said
            return said

        assert "Put something in" in text(visit)
        assert "No rewards yet" in text(visit)
        memory = server.memories.of(Access("test")).memory
        memory.add_many(["To reset the router hold the button.", "To reset the router pull the plug."])
        memory.reward(memory.search("how do I reset the router", top_k=1).decision, 1.0)
        for each in (visit, bound):
            said = text(each)
            assert "Put something in" not in said
            assert "No rewards yet" not in said
            assert "One reward so far: 1.000" in said
            assert "1 item was shown with a reward. None was withheld or kept by chance yet" in said
        visit.close()
        bound.close()


def test_a_list_that_is_under_way_says_so(visit: Visit) -> None:
    visit.page.route("**/v1/memory/search", lambda route: (visit.page.wait_for_timeout(300), route.continue_()))
    visit.page.goto(f"{visit.served.server.url}/#/memory?q=router")
    visit.page.wait_for_selector("text=Loading …")
    visit.settle()
    assert visit.page.locator("text=Loading …").count() == 0
    assert visit.page.locator(".rows-list li").count() > 0


def test_page_without_javascript_names_commands(chromium: Any, served: Served) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served.server.url)
    assert "keepworth memory search" in page.inner_text("main")
    context.close()
