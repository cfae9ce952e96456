"""Lets tests that name a file, or ":memory:", use a memory in Postgres instead: what `KEEPWORTH_TEST_STORE=postgres` asks for.

Each file stands for a schema of its own. Programs that a test starts are sent there, too.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path
from typing import Any

from keepworth.memory.place import on_server
from keepworth.memory.store import opening

ADDRESS = "KEEPWORTH_TEST_ADDRESS"
"""Of the server, in the environment."""

WHOLE = {
    "test_backup.py": "copies of files",
    "test_database.py": "SQLite's locks and its log",
    "test_derived_files.py": "what lies beside a file, and damage",
    "test_large_files.py": "what SQLite holds of a file",
    "test_saved_state.py": "what lies beside a file, and damage",
    "test_vectors.py": "copies of files",
}
"""Tests that are left out in Postgres, and what of a file they are about."""
SOME = {
    "test_erasing_nobody_says_so_and_every_spelling_is_the_same_person": "a file named on the command line",
    "test_options_of_the_command_settle_and_undo": "copies of files",
    "test_on_a_terminal_a_key_decides_about_each_note": "copies of files",
    "test_upkeep": "copies of files and what lies beside them",
    "test_files_of_others_are_refused_and_untouched": "files of others, and newer ones (`test_postgres.py` has the like)",
    "test_a_file_of_another_format_is_refused_and_untouched": "files of others, and newer ones (`test_postgres.py` has the like)",
    "test_a_disk_that_refuses_a_write_is_a_typed_error_and_nothing_is_lost": "the disk, and rights to a file",
    "test_a_memory_for_which_there_is_no_room_is_not_begun": "the disk, and rights to a file",
    "test_a_file_that_may_not_be_read_is_a_typed_error": "the disk, and rights to a file",
    "test_a_file_in_a_folder_that_cannot_be_written_is_searched_and_refuses_writes": "the disk, and rights to a file",
    "test_what_others_write_to_such_a_file_is_seen": "the disk, and rights to a file",
    "test_a_person_is_erased_from_every_byte_of_every_file": "the bytes of files",
    "test_erasing_that_is_killed_is_not_begun_or_finished_when_the_memory_is_opened_again": "the bytes of files",
    "test_a_reader_in_another_process_delays_the_log_and_opening_again_finishes": "the bytes of files",
    "test_a_whole_memory_is_never_erased": "commands that name a file",
    "test_an_undo_is_undone_in_the_same_file": "commands that name a file",
    "test_what_is_older_than_a_rule_of_retention_allows_is_erased_of_one_person": "commands that name a file",
    "test_an_import_by_the_command_line_has_the_encoder_of_what_was_exported": "commands that name a file",
    "test_an_export_to_standard_output_loses_no_character": "commands that name a file",
    "test_our_own_format_is_looked_through_and_what_was_let_out_stays_out": "commands that name a file",
    "test_our_own_format_is_refused_whole": "commands that name a file",
    "test_what_every_search_or_episode_asks_is_asked_of_an_index": "plans of SQLite",
    "test_what_is_new_to_learn_is_read_without_a_look_at_all_scopes": "plans of SQLite",
    "test_messages_name_the_thing_the_place_and_the_fix": "the path of a file, or none",
    "test_what_is_no_path_is_refused_as_such": "the path of a file, or none",
    "test_a_path_too_long_for_the_system_is_a_typed_error": "the path of a file, or none",
    "test_a_damaged_row_is_named": "rows of a file",
    "test_evidence_counts_where_the_item_was_asked_for_and_not_at_the_task_of_its_episode": "commands that name a file",
    "test_what_is_gone_is_left_out_unless_asked_for": "commands that name a file",
    "test_of_a_log_without_odds_nothing_is_guessed": "rows of a file",
    "test_the_command_line_refuses_what_is_not_text": "commands that name a file",
    "test_a_value_that_nobody_wrote_is_damage_and_nothing_is_written_after_it_was_met": "rows of a file",
    "test_bad_lines_are_named_by_number_and_nothing_is_half_imported": "commands that name a file",
    "test_the_command_line_writes_and_reads_lines_of_json": "commands that name a file",
    "test_a_secret_goes_into_quarantine_and_is_counted": "commands that name a file",
    "test_another_action_may_be_chosen": "commands that name a file",
    "test_the_command_prints_groups_and_the_sum": "commands that name a file",
    "test_a_served_memory_and_the_command_line_show_what_is_core": "commands that name a file",
    "test_refused_names_the_line_and_takes_nothing": "commands that name a file",
    "test_nothing_is_written_to_a_file_that_is_gone": "copies of files and what lies beside them",
    "test_the_write_ahead_log_is_moved_into_the_file_beside_the_writes": "SQLite's locks and its log",
    "test_a_file_that_takes_the_place_of_an_open_one_does_not_get_its_log": "SQLite's locks and its log",
    "test_how_durable_a_commit_is_can_be_chosen": "SQLite's locks and its log",
    "test_without_a_model_what_is_stated_is_kept_and_replaced": "the path of a file, or none",
    "test_a_memory_that_is_reset_is_empty_and_goes_on": "the path of a file, or none",
    "test_what_an_older_version_left_without_a_vector_is_named_and_made": "rows of a file",
    "test_the_commands_rollback_gives_a_vector_to_what_it_brings_back": "commands that name a file",
    "test_a_file_without_vectors_stays_without_after_these_commands": "commands that name a file",
    "test_the_command_puts_one_text_under_a_name": "commands that name a file",
    "test_a_backup_that_finds_no_room_leaves_nothing_behind": "copies of files",
    "test_what_can_hold_no_memory_is_refused_by_the_command_line_at_once": "commands that name a file",
}
"""The same of single tests of other files."""


def about_files(path: Path, name: str) -> str | None:
    """What of a file a test is about that cannot be asked of a server; None where it can."""
    return WHOLE.get(path.name) or SOME.get(name.partition("[")[0])


def wanted() -> bool:
    return os.environ.get("KEEPWORTH_TEST_STORE") == "postgres"


def schema_of(path: object) -> str:
    """The schema that stands for a file."""
    if str(path) == ":memory:":
        return f"m_{uuid.uuid4().hex}"
    return f"f_{hashlib.blake2b(os.path.realpath(str(path)).encode(), digest_size=12).hexdigest()}"


def redirect() -> None:
    """From here on, in this process."""
    real = opening.opened

    def opened(path: Any, *, durability: str, read_only: bool) -> Any:
        is_path = isinstance(path, (str, os.PathLike)) and str(path) and "\0" not in str(path)
        if not is_path or on_server(path) or (str(path) != ":memory:" and os.path.lexists(path)):
            return real(path, durability=durability, read_only=read_only)
        address = f"{os.environ[ADDRESS]}&schema={schema_of(path)}"
        return real(address, durability=durability, read_only=read_only)

    opening.opened = opened
