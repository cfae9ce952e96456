"""Files of ratings: MovieLens' columns and plain ones read alike, and what is wrong is named with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from keepworth.methods.studies._ratings import RatedItem, Rating, ratings
from keepworth.tasks.data_files import MissingData, WrongFormat

MOVIES = 'movieId,title,genres\n1,"Alien, the",Horror|Sci-Fi\n2,Blank,(no genres listed)\n'
SEEN = "userId,movieId,rating,timestamp\n7,1,4.5,20\n7,2,2,10\n"


def folder(at: Path, **files: str) -> Path:
    for name, text in files.items():
        at.joinpath(name.replace("_", ".")).write_text(text, encoding="utf-8")
    return at


def test_movielens_files_are_read_as_they_are(tmp_path: Path) -> None:
    found = ratings(folder(tmp_path, movies_csv=MOVIES, ratings_csv=SEEN))
    assert found.items["1"] == RatedItem("1", "Alien, the", ("Horror", "Sci-Fi"))
    assert found.items["2"].categories == ()
    assert found.by_user == {"7": (Rating("7", "2", 2.0), Rating("7", "1", 4.5))}


def test_json_lines_packed_are_read_too_and_the_later_rating_counts(tmp_path: Path) -> None:
    folder(tmp_path, items_jsonl=json.dumps({"item": "a", "title": "A", "categories": ["x", "y", "x"]}) + "\n\n")
    rows = [{"user": "u", "item": "a", "rating": 1}, {"user": "u", "item": "a", "rating": 5, "review": "better now"}]
    (tmp_path / "ratings.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    found = ratings(tmp_path)
    assert found.items["a"].categories == ("x", "y")
    assert found.by_user == {"u": (Rating("u", "a", 5.0, "better now"),)}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ("user,item,rating\nu,1,many\n", "line 2: rating is 'many'"),
        ("user,item,rating\nu,1,nan\n", "line 2: rating is 'nan'"),
        ("user,item,rating\nu,9,3\n", "line 2: the item '9' is not in movies.csv"),
        ("who,item,rating\nu,1,3\n", "line 2: there is no user.*there are who, item, rating"),
        ("user,item,rating\nu,1,3,4\n", "line 2: not as many cells"),
        ("user,item,rating\nu,1\n", "line 2: not as many cells"),
        ("user,item,rating\n", "holds no row"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, seen: str, message: str) -> None:
    with pytest.raises(WrongFormat, match=message):
        ratings(folder(tmp_path, movies_csv=MOVIES, ratings_csv=seen))


def test_items_twice_and_lines_that_are_no_objects_are_named(tmp_path: Path) -> None:
    with pytest.raises(WrongFormat, match="line 4: the item '1' stands there twice"):
        ratings(folder(tmp_path, movies_csv=MOVIES + "1,Again,\n", ratings_csv=SEEN))
    (tmp_path / "movies.csv").unlink()
    for line, message in (("[1]", "line 1: this is no object"), ("{", "line 1: this is no JSON")):
        with pytest.raises(WrongFormat, match=message):
            ratings(folder(tmp_path, movies_jsonl=line))


def test_a_folder_without_them_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"ratings\.csv"):
        ratings(tmp_path)
    with pytest.raises(WrongFormat, match="Name the folder"):
        ratings(folder(tmp_path, ratings_csv=SEEN) / "ratings.csv")
