"""Which tests run on Windows, and what keeps the others from it.

`NEEDS` names tests by the beginning of their ids, and the longest beginning counts. A file with a
need is not even imported there.
"""

from __future__ import annotations

_AUDIT = "tests/features/test_audit_file.py"
_GATEWAY = "tests/apps/gateway/test_faults.py"
_LIMITS = "tests/kernel/test_execution_limits.py"
_SQLITE = "tests/base/database/test_sqlite.py"
_TASKS = "tests/apps/task_server/faults/test_sqlite.py"

TESTS = (
    "tests/windows",
    "tests/client/test_misbehaving_http.py",
    "tests/client/test_misbehaving_stdio.py",
    "tests/client/test_stdio_servers.py",
    "tests/client/transports/test_family.py",
    "tests/client/transports/test_windows_command.py",
    "tests/base/http_client",
    "tests/features/completions",
    "tests/features/forwarding",
    "tests/features/prompts",
    "tests/features/resources",
    "tests/features/signatures",
    "tests/features/subscriptions",
    "tests/features/tasks",
    "tests/features/typed",
    "tests/integration/test_end_of_input.py",
    "tests/integration/test_hostile_input.py",
    "tests/integration/test_http_process.py",
    "tests/kernel",
    "tests/protocol",
    "tests/base/test_files.py",
    "tests/base/test_shell_words.py",
    "tests/base/config/test_config_files.py",
    "tests/base/mcp_json",
    # Of what uses SQLite, and of applications, a choice: each of its processes takes seconds to
    # start under Wine, and of the others many need a signal, a limit or a mode of POSIX, or a
    # start in time.
    f"{_SQLITE}::test_kill_of_one_process_loses_nothing_and_leaves_the_others_working",
    f"{_SQLITE}::test_process_knows_whether_it_is_alone",
    f"{_SQLITE}::test_private_file_and_its_journal_are_for_their_owner_only",
    f"{_AUDIT}::test_processes_share_a_file_line_by_line",
    f"{_AUDIT}::test_without_atomic_appends_records_wait_for_the_lock",
    "tests/agents/ledger/test_killed.py",
    "tests/agents/ledger/test_setup.py",
    "tests/apps/coordinator/test_servers.py::test_killed_server_fails_its_call_and_no_other",
    "tests/apps/dev/test_page_access.py",
    "tests/apps/examples/test_examples.py::test_files_are_shown_and_read",
    "tests/apps/examples/test_examples.py::test_folder_cannot_be_left",
    "tests/apps/dev/test_restarts.py::test_client_stays_and_hears_of_new_tools[2025-11-25]",
    "tests/apps/gateway/test_command.py::test_unusable_file_stops_the_start[{]",
    f"{_GATEWAY}::test_dead_hanging_and_lying_servers_take_nothing_from_the_others",
    f"{_GATEWAY}::test_file_that_changes_is_read_again_under_load",
    "tests/apps/host/web/test_colours.py::test_pieces_of_code_have_their_kind",
    "tests/apps/host/web/test_process.py::test_chat_survives_kill_and_restart_on_sqlite",
    "tests/apps/host/web/test_rest.py",
    "tests/apps/host/web/test_socket.py",
    "tests/apps/task_server/app/test_work.py",
    f"{_TASKS}::test_accepted_jobs_are_done_once_however_often_processes_are_killed",
    "tests/test_vectors.py",
)
"""What `make windows` runs: of these, all that needs nothing that Windows has not.

Other tests of servers and clients over stdio and HTTP show nothing more of Windows: a process takes
a second to start under Wine.
"""

_CLOSED = "nothing reports an output that the client has closed (spec/windows.md)"
_CONSOLE = "Wine's console holds an output that the server has closed"
_FORKS = "workers, which are forked"

NEEDS = {
    "tests/base/config/test_config_files.py::test_a_file_that_cannot_be_read": "links, not in Wine",
    "tests/features/tasks/test_process.py": "a scripted host of processes (signals, poll)",
    "tests/kernel/engine/test_interruptions.py": "the reactor of POSIX (poll)",
    "tests/kernel/stdio": "descriptors and the reactor of POSIX (poll)",
    f"{_LIMITS}::test_memory_is_peak_if_kernel_reports_no_other": "getrusage",
    f"{_LIMITS}::test_resident_memory_is_of_this_process_in_bytes": "memory in /proc",
    "tests/base/http_client/test_connection.py": "uvloop",
    "tests/apps/dev/test_page_access.py::test_descriptors_of_readers_and_restarts_are_given_back": (
        "descriptors in /proc"
    ),
    "tests/apps/dev/test_page_access.py::test_state_has_target_servers_and_clients": "kill(pid, 0)",
    "tests/base/mcp_json/test_agreement.py::test_record_is_the_users_alone": "modes of POSIX",
    **{
        f"tests/client/test_misbehaving_stdio.py::test_a_server_that_ends_during_a_call[{acts}]": (
            _CONSOLE
        )
        for acts in ("closes its output", "closes its output and ignores all")
    },
    **{
        f"tests/integration/test_end_of_input.py::{test}": _CLOSED
        for test in (
            "test_a_client_that_is_killed_ends_the_server",
            "test_a_closed_output_aborts_at_once",
            "test_a_closed_output_ends_an_idle_process",
            "test_an_output_that_is_closed_during_the_grace_ends_the_grace",
        )
    },
    **{
        f"tests/integration/test_http_process.py::{test}": _FORKS
        for test in (
            "test_two_workers_share_a_port_and_one_that_dies_is_replaced",
            "test_workers_that_die_at_once_are_replaced_and_the_others_serve_on",
            "test_what_one_worker_asked_another_takes_the_answer_to",
            "test_workers_end_with_whoever_started_them",
            "test_workers_that_cannot_begin_end_all",
            "test_worker_whose_report_was_not_read_ends_too",
        )
    },
}

SAMPLES = {
    "tests/test_vectors.py::test_a_real_process_answers_as_the_vector_says": 7,
    "tests/client/test_misbehaving_http.py": 5,
    "tests/client/test_misbehaving_stdio.py": 2,
    "tests/features/signatures": 3,
}
"""Of these every so many tests is run: their cases start a process each, or are many and pure."""


def need_of(test: str) -> str | None:
    """Return what a test, a file or a folder needs; None for one that runs there."""
    found = [
        each
        for each in NEEDS
        if test == each or test.startswith((f"{each}::", f"{each}/", f"{each}["))
    ]
    return NEEDS[max(found, key=len)] if found else None
