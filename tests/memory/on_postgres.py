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
    "test_first_pass.py": "codes, which files alone have: Postgres is searched exactly",
    "test_interrupts.py": "statements of SQLite",
    "test_large_files.py": "what SQLite holds of a file",
    "test_nights.py": "a simulated disk under a file",
    "test_saved_state.py": "what lies beside a file, and damage",
    "test_vectors.py": "copies of files",
}
"""Tests that are left out in Postgres, and what of a file they are about."""
SOME = {
    "test_wordings_are_told_apart_after_reopening": "rows of a file",
    "test_rewording_by_an_earlier_version_keeps_rewards": "rows of a file",
    "test_erasing_a_reworded_note_leaves_no_digest_of_it": "rows of a file",
    "test_erasing_a_note_that_was_found_and_not_shown_leaves_no_digest_in_a_compacted_log": "rows of a file",
    "test_a_saved_state_may_hold_arrays_and_long_lists": "a file that is changed behind the memory's back",
    "test_erase_reports_unknown_persons_and_unifies_spellings": "a file named on the command line",
    "test_review_command_settles_and_undoes": "copies of files",
    "test_review_on_a_terminal_asks_about_each_note": "copies of files",
    "test_maintenance_compacts_and_checks": "copies of files and what lies beside them",
    "test_foreign_files_are_refused_and_untouched": "files of others, and newer ones (`test_postgres.py` has the like)",
    "test_a_file_of_another_format_is_refused_and_untouched": "files of others, and newer ones (`test_postgres.py` has the like)",
    "test_full_disk_raises_a_typed_error_and_loses_no_items": "the disk, and rights to a file",
    "test_full_disk_leaves_no_new_memory": "the disk, and rights to a file",
    "test_a_file_that_may_not_be_read_is_a_typed_error": "the disk, and rights to a file",
    "test_a_file_in_a_folder_that_cannot_be_written_is_searched_and_refuses_writes": "the disk, and rights to a file",
    "test_reader_of_an_unwritable_folder_sees_later_writes": "the disk, and rights to a file",
    "test_a_person_is_erased_from_every_byte_of_every_file": "the bytes of files",
    "test_killed_erasure_is_undone_or_finished_on_reopening": "the bytes of files",
    "test_erasure_blocked_by_a_reader_finishes_on_reopening": "the bytes of files",
    "test_a_whole_memory_is_never_erased": "commands that name a file",
    "test_an_undo_is_undone_in_the_same_file": "commands that name a file",
    "test_forget_older_than_erases_old_items_of_one_person": "commands that name a file",
    "test_import_command_uses_the_encoder_of_the_export": "commands that name a file",
    "test_an_export_to_standard_output_loses_no_character": "commands that name a file",
    "test_native_import_is_scanned_and_respects_releases": "commands that name a file",
    "test_native_import_with_a_refused_secret_is_refused_whole": "commands that name a file",
    "test_frequent_queries_use_an_index": "plans of SQLite",
    "test_new_rewards_are_read_without_scanning_scopes": "plans of SQLite",
    "test_messages_name_the_thing_the_place_and_the_fix": "the path of a file, or none",
    "test_non_path_is_refused": "the path of a file, or none",
    "test_a_path_too_long_for_the_system_is_a_typed_error": "the path of a file, or none",
    "test_a_damaged_row_is_named": "rows of a file",
    "test_evidence_counts_at_the_query_and_not_at_the_episode_task": "commands that name a file",
    "test_ledger_omits_deleted_and_unseen_items_by_default": "commands that name a file",
    "test_log_without_odds_gives_no_evidence": "rows of a file",
    "test_command_line_refuses_non_text_input": "commands that name a file",
    "test_invalid_stored_value_counts_as_damage_and_stops_writes": "rows of a file",
    "test_bad_lines_are_named_by_number_and_import_is_atomic": "commands that name a file",
    "test_a_pipe_is_imported_where_its_form_is_named_and_never_read_as_empty": "commands that name a file",
    "test_sources_that_are_no_file_of_the_form_are_named": "commands that name a file",
    "test_an_image_in_a_journal_that_cannot_be_read_is_one_of_the_import": "commands that name a file",
    "test_the_command_line_writes_and_reads_lines_of_json": "commands that name a file",
    "test_import_quarantines_and_counts_secrets": "commands that name a file",
    "test_import_action_for_secrets_can_be_chosen": "commands that name a file",
    "test_the_command_prints_groups_and_the_sum": "commands that name a file",
    "test_server_and_command_line_show_core_items": "commands that name a file",
    "test_refused_import_names_the_line_and_imports_no_items": "commands that name a file",
    "test_write_to_a_removed_file_is_refused": "copies of files and what lies beside them",
    "test_the_write_ahead_log_is_moved_into_the_file_beside_the_writes": "SQLite's locks and its log",
    "test_replaced_file_does_not_receive_the_old_log": "SQLite's locks and its log",
    "test_file_that_was_moved_away_from_its_log_is_refused_until_it_is_back": "copies of files and what lies beside them",
    "test_memory_is_not_made_beside_the_log_of_another": "copies of files and what lies beside them",
    "test_file_in_the_place_of_another_is_not_read_with_the_log_of_that_one": "copies of files and what lies beside them",
    "test_memory_that_is_moved_with_its_log_opens_there": "copies of files and what lies beside them",
    "test_missing_file_that_is_opened_to_read_is_named_with_the_fix": "the path of a file, or none",
    "test_durability_option_sets_the_sync_mode": "SQLite's locks and its log",
    "test_mem0_add_keeps_and_replaces_statements_without_a_model": "the path of a file, or none",
    "test_mem0_reset_empties_the_memory": "the path of a file, or none",
    "test_missing_vectors_are_reported_and_made": "rows of a file",
    "test_rollback_command_makes_vectors_of_revived_items": "commands that name a file",
    "test_commands_make_no_vectors_in_a_file_without_an_encoder": "commands that name a file",
    "test_the_command_puts_one_text_under_a_name": "commands that name a file",
    "test_backup_without_room_leaves_no_file": "copies of files",
    "test_command_line_refuses_pipes_loops_and_long_names": "commands that name a file",
    "test_pickling_an_open_memory_raises_an_error_with_a_fix": "the path of a file, or none",
    "test_prompt_lines_hold_duplicate_notes_once": "commands that name a file",
    "test_the_command_line_takes_several_files_a_folder_and_pam": "commands that name a file",
    "test_the_command_line_decides_as_well": "commands that name a file",
    "test_the_command_line_shows_passages_of_long_notes": "commands that name a file",
    "test_kept_error_of_a_failed_write_blocks_no_writer": "the disk, and rights to a file",
    "test_search_of_a_small_scope_reads_only_its_rows": "plans of SQLite",
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
