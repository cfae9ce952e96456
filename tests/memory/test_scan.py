"""What should not be remembered: what the rules find, and what becomes of an item in which they do."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth import Memory
from keepworth.base.errors import UnknownName
from keepworth.cli.main import main
from keepworth.memory.errors import InvalidText, RefusedText
from keepworth.memory.item import Provenance, Status
from keepworth.memory.patterns import read_file, split_alternatives
from keepworth.memory.scan import HELD_FOR, Scan, scan_of
from keepworth.memory.sensitive import HIDDEN, PERSONAL, ROOTS, SECRETS, SensitiveSpan, sensitive, without_secrets
from keepworth.memory.store.checks import check
from tests.memory.helpers import finds

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"
CARD = "4111 1111 1111 1111"
REMOVED = "[api key removed]"
ALL = Scan(dict.fromkeys((*SECRETS, *PERSONAL), "redact"))
MADE = [
    "ghp_" + "a1B2" * 9,
    "sk-ant-api03-" + "x7Q_" * 8,
    "AIza" + "SyA-_1234567890abcdefghijklmnopqrst",
    "xoxb-123456789012-abcdefABCDEF",
    "kw_" + "dGhpcyBpcyBhIHRva2Vu-" * 2 + "_",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
]
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        *((f"use {key} for it", "api_key", key) for key in (KEY, *MADE)),
        (f"a {PEM} b", "private_key", PEM),
        ("Authorization: Bearer abcdef0123456789", "api_key", "abcdef0123456789"),
        ("the token is abcdef0123456789.", "api_key", "abcdef0123456789"),
        ("?access_token=abcdef0123456789&x=1", "api_key", "abcdef0123456789"),
        ("AKIAIOSFODNN7EXAMPLE is in the file", "api_key", "AKIAIOSFODNN7EXAMPLE"),
        ("the api key is 9f8e7d6c5b4a39281706", "api_key", "9f8e7d6c5b4a39281706"),
        ("postgres://ana:hunter22@db.example.org/x", "api_key", "hunter22"),
        (f"my card is {CARD}, until 12/29", "card_number", CARD),
        ("My password is swordfish7.", "password", "swordfish7"),
        ("the wifi password: Ab!cdefg", "password", "Ab!cdefg"),
        ("his password for the router is 'salmon'", "password", "salmon"),
        ("My API token is kzqwmtrvbxplnd", "api_key", "kzqwmtrvbxplnd"),
        ("The API token is abcdefghijklmnop.", "api_key", "abcdefghijklmnop"),
        ("aws secret = wJalrXUtnFEMIKMDENG", "api_key", "wJalrXUtnFEMIKMDENG"),
        ("client_secret=abcdefgh", "api_key", "abcdefgh"),
        ('AUTH_TOKEN="abcdefgh"', "api_key", "abcdefgh"),
        ("PASSWORD=Secret", "password", "Secret"),
        ("DB_PASS=hello", "password", "hello"),
        ('{"password": "letmein"}', "password", "letmein"),
        ("--password=hunterr --host x", "password", "hunterr"),
        ("Our wifi password is bananabread!", "password", "bananabread"),
        ("his passphrase is 'blue moon'", "password", "blue moon"),
        ("Password for the router is: salmonella", "password", "salmonella"),
        ("write to ana@example.org today", "email", "ana@example.org"),
        ("call +49 170 1234567 after six", "phone", "+49 170 1234567"),
        ("call 555-867-5309", "phone", "555-867-5309"),
        ("IBAN DE89 3704 0044 0532 0130 00, please", "iban", "DE89 3704 0044 0532 0130 00"),
    ],
)
def test_scan_finds_sensitive_spans(text: str, kind: str, found: str) -> None:
    assert [(span.kind, text[span.start : span.end]) for span in sensitive(text)] == [(kind, found)]
    hidden = without_secrets(text)
    assert hidden == (text if kind in PERSONAL else text.replace(found, HIDDEN))
    assert without_secrets(hidden) == hidden
    assert ALL.redacted(ALL.redacted(text)) == ALL.redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "the password is required, and my password is wrong",
        "a secret is something that nobody knows",
        "the API token is expired, and your password is too weak.",
        "the token is required; my API key is working.",
        "the secret is patience. The secret of good bread is time",
        "My secret ingredient is cinnamon. Secret Santa: Maria",
        "password: required",
        "password = input()",
        "api_key = os.environ['KEY']; token = 'your-token-here'; password = '<password>'",
        "my password is on the fridge, and it was changed yesterday",
        "the key is to relax. key: value, max_tokens=512, tokenizer=bert-base, primary_key = id",
        "the passport number is needed; compass: north; passage = chapter1",
        "My password is [password removed], and the API token is [secret].",
        "4111 1111 1111 1112 fails the check digit",
        "0000 0000 0000 0000",
        "on 2026-11-22 at 10:30 we sold 12,345,678 shares for 1 234 567",
        "version 10.20.30.40 of the API",
        "DE89 3704 0044 0532 0130 01 fails the remainder",
        "she met him @ the station",
    ],
)
def test_scan_ignores_harmless_text(text: str) -> None:
    assert sensitive(text) == []


TOLD_ABROAD = [
    ("Das Passwort ist geheim123abc", "geheim123abc"),
    ("Passwort: geheim123abc", "geheim123abc"),
    ("WLAN-Passwort: sommer2026", "sommer2026"),
    ("Mein Kennwort ist Hund77!x", "Hund77!x"),
    ("Passwort: sommerregen", "sommerregen"),
    ("Das Passwort für den Router lautet „Regenbogen“", "Regenbogen"),
    ("Mi contraseña es gato1234", "gato1234"),
    ("La contraseña del wifi es gato1234.", "gato1234"),
    ("mon mot de passe est chat1234", "chat1234"),
    ("Mot de passe wifi : chat1234", "chat1234"),
    ("La password è gatto1234", "gatto1234"),
    ("La mia parola d'ordine è gatto1234", "gatto1234"),
    ("A minha senha é gato1234", "gato1234"),
    ("Palavra-passe: gato1234", "gato1234"),
    ("Mijn wachtwoord is hond1234", "hond1234"),
    ("het wachtwoord voor de router is hond1234", "hond1234"),
    ("Moje hasło to kot12345", "kot12345"),
    ("Мой пароль qwerty123", "qwerty123"),
    ("Пароль от вайфая: qwerty123", "qwerty123"),
    ("Şifrem kedi1234", "kedi1234"),
    ("wifi şifresi: kedi1234", "kedi1234"),
    ("パスワードは geheim123abc です", "geheim123abc"),
    ("暗証番号は4711です", "4711"),
    ("密码是abc12345", "abc12345"),
    ("我的密码：abc12345", "abc12345"),
    ("비밀번호는 geheim123 입니다", "geheim123"),
    ("Meine PIN ist 4711.", "4711"),
    ("My PIN is 4711", "4711"),
    ("mon code PIN est 4711", "4711"),
    ("мой пин-код 4711", "4711"),
    ("PIN kodum 4711", "4711"),
    ("Lösenordet är katt1234", "katt1234"),
]
"""What tells a password or a PIN, with its value."""
NOT_TOLD = [
    "Das Passwort wurde geändert",
    "Ich habe mein Passwort vergessen.",
    "I forgot my password",
    "Das Passwort ist abgelaufen.",
    "Passwort: erforderlich",
    "Das Passwort ist 8-stellig",
    "Passwort geändert am: 2024-05-01",
    "Passwort: siehe Tresor",
    "Passwort: ********",
    "Das Passwort ist Klein-/Großschreibung",
    "La contraseña es incorrecta",
    "La clave del éxito es la paciencia2",
    "La contraseña fue cambiada en 2024",
    "Mot de passe oublié ?",
    "mon mot de passe est trop court",
    "Mot de passe : 8 caractères minimum",
    "La password è sbagliata",
    "Esqueci minha senha",
    "A palavra-chave é amor",
    "Desenha: gato1234",
    "Het wachtwoord is verlopen",
    "Zapomniałem hasła",
    "Hasło to podstawa bezpieczeństwa",
    "Я забыл пароль",
    "Пароль изменён",
    "Şifremi unuttum",
    "Şifre değiştirildi",
    "パスワードを忘れました",
    "パスワードは8文字以上です",
    "パスワードは2024年に変更しました",
    "パスワードは1Passwordで管理しています",
    "密码忘了",
    "密码是错误的",
    "密码是8位数字",
    "비밀번호를 잊어버렸어요",
    "비밀번호는 8자리입니다",
    "Meine PIN ist gesperrt",
    "My PIN was changed in 2024",
    "The pin is GPIO17",
]
"""What speaks of a password or a PIN and tells none."""


def test_passwords_are_held_in_many_languages_and_talk_of_them_is_not() -> None:
    with Memory(":memory:", encoder=None, scan=Scan({"password": "quarantine"})) as held:
        told = {text: held.add(text).status for text, _ in TOLD_ABROAD}
        assert [text for text, status in told.items() if status is not Status.QUARANTINED] == []
        spoken = {text: held.add(text).status for text in NOT_TOLD}
        assert [text for text, status in spoken.items() if status is not Status.ACTIVE] == []


@pytest.mark.parametrize(("text", "value"), TOLD_ABROAD)
def test_a_password_alone_is_taken_out_of_its_sentence(text: str, value: str) -> None:
    hidden = without_secrets(text)
    assert hidden == text.replace(value, HIDDEN)
    assert without_secrets(hidden) == hidden
    assert ALL.redacted(ALL.redacted(text)) == ALL.redacted(text)


def test_each_word_for_a_password_has_a_beginning_for_which_texts_are_looked_through() -> None:
    words = [
        word for section in ("called", "numbered") for text in read_file("passwords")[section].values()
        for word in split_alternatives(text)
    ]  # fmt: skip
    assert [word for word in words if ROOTS.search(word) is None] == []


@given(st.text(max_size=300))
def test_any_text_can_be_scanned_and_spans_lie_apart(text: str) -> None:
    spans = sensitive(text)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(one.end <= other.start for one, other in itertools.pairwise(spans))
    assert ALL.redacted(text) == text or spans


SLOW = [
    "a-",
    "eyJ_",
    "password ",
    "token=",
    "api_key: ",
    "x_",
    "1 ",
    "a@",
    "sk-",
    "AB12 ",
    "the ",
    "passwort ",
    "passwort für a ",
    "пароль ",
    "pin ",
    "密码",
]


@pytest.mark.parametrize("unit", SLOW)
def test_scan_time_is_bounded_for_hostile_text(unit: str) -> None:
    """A megabyte of what each rule has to look at closest; a rule that tries all ways would not end in days."""
    assert sensitive(unit * (400_000 // len(unit))) is not None


def memory(action: str, personal: str = "allow") -> Memory:
    return Memory(":memory:", encoder="hashing", scan=scan_of(action, personal))


def test_quarantined_item_is_not_found_until_released() -> None:
    with memory("quarantine") as held:
        item = held.add(f"the deploy key is {KEY}", user_id="ana")
        assert item.status is Status.QUARANTINED
        assert item.metadata[HELD_FOR] == "api_key"
        for mode in ("lexical", "dense", "hybrid"):
            assert held.search("deploy key", user_id="ana", mode=mode) == []
        assert [each.id for each in held.quarantined()] == [item.id]
        assert held.within(user_id="bo").quarantined() == []
        free = held.release(item.id)
        assert (free.status, free.metadata) == (Status.ACTIVE, {})
        assert [hit.id for hit in held.search("deploy key", user_id="ana")] == [item.id]
        with pytest.raises(InvalidText, match="not in quarantine"):
            held.release(item.id)


def test_updates_and_successors_are_scanned() -> None:
    with memory("quarantine") as held:
        item, other = (held.add(text, user_id="ana") for text in ("the key is under the mat", "the card is new"))
        assert held.update(item.id, f"the key is {KEY}").status is Status.QUARANTINED
        assert held.supersede(other.id, f"the card is {CARD}").status is Status.QUARANTINED
        assert held.search("the key or the card", user_id="ana") == []
        assert held.add("harmless", user_id="ana", metadata={"seen": [KEY]}).status is Status.QUARANTINED


def test_redacted_item_is_stored_without_the_secret(path: Path) -> None:
    with Memory(path, encoder="hashing", scan=scan_of("redact", "redact")) as kept:
        item = kept.add(f"deploy with {KEY}, ask ana@example.org", user_id="ana", metadata={"note": KEY})
        assert item.text == f"deploy with {REMOVED}, ask [email removed]"
        assert item.metadata == {"note": REMOVED}
        assert [hit.id for hit in kept.search("deploy", user_id="ana", mode="dense")] == [item.id]
        with kept.episode(f"use {KEY}", user_id="ana") as episode:
            episode.search(f"what of {KEY}", actions=[f"send {KEY}", "wait"])
            episode.act(f"said {KEY}")
        episode.end(f"stopped by {KEY}")
        kept.search(f"and of {KEY}", actions=[KEY])
        told = Provenance("chat", session=KEY, speaker=KEY, date=KEY)
        (other,) = kept.add_many(["tea at four"], provenances=[told])
        assert other.provenance == Provenance("chat", REMOVED, -1, REMOVED, REMOVED)
    assert KEY.encode() not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_every_text_field_is_scanned() -> None:
    with memory("quarantine") as held:
        item = held.add("harmless", user_id="ana")
        assert held.update(item.id, metadata={"note": KEY}).status is Status.QUARANTINED
        assert held.release(item.id).status is Status.ACTIVE
        assert held.add("harmless, too", source=KEY).status is Status.QUARANTINED
    with memory("redact") as kept:
        item = kept.add("harmless", source=KEY)
        assert item.provenance.source == REMOVED
        assert kept.update(item.id, metadata={"note": KEY}).metadata == {"note": REMOVED}
    with memory("refuse") as strict:
        item = strict.add("harmless")
        with pytest.raises(RefusedText, match="api_key"):
            strict.update(item.id, metadata={"note": KEY})
        assert strict.get(item.id).metadata == {}
        for told in (Provenance(session=KEY), Provenance(date=KEY)):
            with pytest.raises(RefusedText, match="api_key"):
                strict.add_many(["tea"], provenances=[told])


def test_own_scan_function_finds_its_terms() -> None:
    def codename(text: str) -> list[SensitiveSpan]:
        place = text.find("Bluebird")
        return [SensitiveSpan("codename", place, place + 8)] if place >= 0 else []

    with Memory(":memory:", encoder=None, scan=Scan({"codename": "redact"}, codename)) as own:
        assert own.add("Project Bluebird ships in May").text == "Project [codename removed] ships in May"
        assert own.add(f"{KEY} is not asked for").status is Status.ACTIVE


@pytest.mark.parametrize("actions", [{"api_key": "burn"}, {"apikey": "redact"}])
def test_unknown_scan_kinds_and_actions_are_refused(actions: dict[str, str]) -> None:
    with pytest.raises(UnknownName):
        Scan(actions)


# What is imported is looked through for secrets, as what is written is, whatever format it comes in.


SECRET, PLAIN = "My password is swordfish7.", "I like green tea"
MEM0 = {"results": [{"id": "1", "memory": text, "user_id": "ana"} for text in (SECRET, PLAIN)]}
FILES = {
    "jsonl": "\n".join(json.dumps(text) for text in (SECRET, PLAIN)),
    "mem0": json.dumps(MEM0),
    "markdown": f"# Notes\n\n* {SECRET}\n* {PLAIN}\n",
}


def taken(folder: Path, format: str, *words: str) -> Path:
    source, file = folder / f"in.{format}", folder / "agent.mem"
    source.write_text(FILES[format])
    main(["memory", "import", str(source), "--from", format, "--file", str(file), "--encoder", "none", *words])
    return file


def states(file: Path) -> dict[str, str]:
    with Memory(file, encoder=None) as memory:
        return {item.text: item.status.value for item in memory.get_all(all_states=True)}


@pytest.mark.parametrize("format", FILES)
def test_import_quarantines_and_counts_secrets(tmp_path: Path, format: str, capsys) -> None:
    file = taken(tmp_path, format)
    assert "2 items, 0 that were there already, 1 of them in quarantine (password 1;" in capsys.readouterr().out
    assert states(file) == {SECRET: "quarantined", PLAIN: "active"}
    with Memory(file, encoder=None) as memory:
        assert finds(memory, "password green tea swordfish7") == [PLAIN]


def test_import_action_for_secrets_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = taken(tmp_path, "jsonl", "--secrets", "redact")
    assert "2 items, 0 that were there already, 1 without what was taken out of them." in capsys.readouterr().out
    assert states(file) == {"My password is [password removed].": "active", PLAIN: "active"}
    (tmp_path / "b").mkdir()
    assert states(taken(tmp_path / "b", "jsonl", "--secrets", "allow")) == {SECRET: "active", PLAIN: "active"}


def test_refused_import_names_the_line_and_imports_no_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = taken(tmp_path, "jsonl", "--secrets", "refuse")
    assert "line 1: the text holds what is not remembered here: password" in capsys.readouterr().err
    assert states(file) == {}
    taken(tmp_path, "jsonl", "--secrets", "refuse", "--skip-bad")
    assert "1 left out" in capsys.readouterr().out
    assert states(file) == {PLAIN: "active"}


def exported(folder: Path) -> Path:
    with Memory(folder / "old.mem", encoder=None) as memory:
        memory.add_many([SECRET, PLAIN, "The API token is abcdefghijklmnop."])
    with Memory(folder / "old.mem", encoder=None, scan=Scan()) as memory:
        memory.update("m3", status="quarantined")
        memory.release("m3")
    main(["memory", "export", str(folder / "all.jsonl"), "--file", str(folder / "old.mem")])
    return folder / "all.jsonl"


def test_native_import_is_scanned_and_respects_releases(tmp_path: Path, capsys) -> None:
    source, file = exported(tmp_path), tmp_path / "new.mem"
    capsys.readouterr()
    main(["memory", "import", str(source), "--file", str(file)])
    assert "3 items, 1 of them in quarantine (password 1;" in capsys.readouterr().out
    assert list(states(file).values()) == ["quarantined", "active", "active"]
    with Memory(file, encoder=None) as memory:
        assert check(memory.store) == []


WHOLE = {"refuse": "the text holds what is not remembered here: password", "redact": "nothing is taken out of it"}


@pytest.mark.parametrize("action", WHOLE)
def test_native_import_with_a_refused_secret_is_refused_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    source, file = exported(tmp_path), tmp_path / "new.mem"
    main(["memory", "import", str(source), "--file", str(file), "--secrets", action])
    assert WHOLE[action] in capsys.readouterr().err
    assert not file.exists() or states(file) == {}
