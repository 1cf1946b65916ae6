"""The command line: lazy loading, exit codes, one line an error, JSON last."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from zerolayer import __version__
from zerolayer.cli import main as cli_main
from zerolayer.cli import output
from zerolayer.cli.ask import gather_questions, print_answer
from zerolayer.cli.bench import BENCHES
from zerolayer.cli.chat import _lines
from zerolayer.cli.main import COMMANDS, cli
from zerolayer.cli.reading import citation_line, warn_about
from zerolayer.core import Answer, Citation, TurnMetrics
from zerolayer.errors import EncodingError, UsageError

HEAVY = {"torch", "transformers", "numpy", "rich", "pydantic", "pypdfium2", "bm25s", "rjieba", "reportlab"}
CITATION = Citation("contract.pdf", 12, "4.2", "The term\n ends on 1 May.", 0, 24, 0.5)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def run():
    return lambda *args, **kwargs: CliRunner().invoke(cli, list(args), **kwargs)


@pytest.fixture
def contract(tmp_path):
    path = tmp_path / "contract.txt"
    path.write_text("1. The term ends on 1 May 2031.\n")
    return str(path)


class TestLoading:
    @pytest.mark.parametrize(
        "args", [["--help"], ["--version"], ["bench", "--help"], ["ask", "--help"], ["model", "-h"]]
    )
    def test_help_imports_nothing_heavy(self, args):
        script = (
            "import sys; from zerolayer.cli.main import cli\n"
            f"try: cli({args!r}, prog_name='zerolayer')\n"
            f"finally: print('HEAVY', sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout
        assert done.stderr.strip() == "HEAVY []"

    @pytest.mark.parametrize("name", sorted(COMMANDS))
    def test_every_command_loads_and_explains_itself(self, run, name):
        result = run(name, "--help")
        assert result.exit_code == 0, result.stderr
        assert f"zerolayer {name}" in result.stdout.replace("cli ", "zerolayer ", 1)

    def test_bench_help_lists_all_benches(self, run):
        stdout = run("bench", "--help").stdout
        assert [name for name in BENCHES if f"\n  {name}" not in stdout] == []

    def test_version(self, run):
        assert run("--version").stdout == f"zerolayer {__version__}\n"

    def test_target_that_is_no_command_is_a_defect(self):
        with pytest.raises(TypeError, match="is a dict, not a click command"):
            cli_main.LazyCommand("zerolayer.cli.main:COMMANDS", "").load()


class TestErrors:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["frobnicate"], "No such command 'frobnicate'"),
            (["ask"], "Missing argument 'FILES...'"),
            (["ask", "absent.pdf", "-q", "x"], "'absent.pdf' does not exist"),
            (["chat", "absent.pdf"], "'absent.pdf' does not exist"),
            (["ask", "contract.txt"], "no question: give -q"),
            (["ask", "contract.txt", "-q", "  "], "no question: give -q"),
            (["ask", "contract.txt", "--questions", "absent.txt"], "'absent.txt' does not exist"),
            (
                ["ask", "contract.txt", "-q", "x", "--policy", "magic"],
                "unknown policy 'magic'; known: graded, lru",
            ),
            (["ask", "contract.txt", "-q", "x", "--codec", "mp3"], "unknown codec 'mp3'; known: "),
            (["ask", "contract.txt", "-q", "x", "--model", "gpt9"], "unknown model 'gpt9'; known: "),
            (["ask", "contract.txt", "-q", "x", "--device-budget", "0"], "device budget '0' is zero"),
            (
                ["ask", "contract.txt", "-q", "x", "--device-budget", "0%"],
                "device budget '0%' is out of range",
            ),
            (["ask", "contract.txt", "-q", "x", "--device-budget", "101%"], "'101%' is out of range"),
            (
                ["ask", "contract.txt", "-q", "x", "--device-budget", "abc"],
                "device budget 'abc' is not a size",
            ),
            (["ask", "contract.txt", "-q", "x", "--host-budget", "0"], "'0' is zero"),
            (["ask", "contract.txt", "-q", "x", "--disk-budget", "10 parsecs"], "'10 parsecs' is not a size"),
            (["ask", "contract.txt", "-q", "x", "--max-new-tokens", "0"], "'max_new_tokens' has the value 0"),
            (["ask", "contract.txt", "-q", "x", "--colour", "red"], "No such option '--colour'"),
            (["demo", "--device-budget", "all"], "device budget 'all' is not a size"),
            (["bench", "everything"], "No such command 'everything'"),
            (["model", "path", "gpt9"], "unknown model 'gpt9'; known: minilm, qwen2.5-coder-0.5b, smollm2"),
            (["model", "add", "absent"], "unknown model 'absent'"),
        ],
    )
    def test_usage_errors_exit_2(self, run, contract, args, message):
        result = run(*args)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert message in result.stderr
        assert "Traceback" not in result.stderr

    def test_unknown_setting_in_the_environment(self, run, contract, monkeypatch):
        monkeypatch.setenv("ZEROLAYER_BUDGET", "1")
        result = run("ask", contract, "-q", "x")
        assert result.exit_code == 2
        assert "unknown setting ZEROLAYER_BUDGET" in result.stderr

    def test_unknown_setting_in_the_file(self, run, contract, tmp_path):
        (tmp_path / "zerolayer.toml").write_text("polcy = 'lru'\n")
        result = run("ask", contract, "-q", "x")
        assert result.exit_code == 2
        assert "'polcy'" in result.stderr

    def test_failure_exits_1(self, run):
        result = run("model", "path", "smollm2")
        assert (result.exit_code, result.stdout) == (1, "")
        assert (
            result.stderr
            == "error: model 'smollm2' has not been downloaded; run: zerolayer model add smollm2\n"
        )

    def test_model_that_is_no_language_model_exits_1(self, run, contract, tmp_path):
        (tmp_path / "bert").mkdir()
        (tmp_path / "bert/config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')
        result = run("ask", contract, "-q", "x", "--model", "./bert")
        assert result.exit_code == 1
        assert "no causal language model" in result.stderr

    def test_very_verbose_shows_the_traceback(self, run):
        assert "Traceback" in run("-vv", "model", "path", "smollm2").stderr
        assert "Traceback" not in run("-v", "model", "path", "smollm2").stderr

    @pytest.mark.parametrize(
        ("error", "code", "message"),
        [
            (KeyboardInterrupt(), 130, "error: interrupted"),
            (OSError(28, "No space left on device"), 1, "No space left on device"),
            (
                ModuleNotFoundError("no torch", name="torch.nn"),
                1,
                "torch is not installed; run: pip install 'zerolayer[hf]'",
            ),
        ],
    )
    def test_other_ends(self, run, monkeypatch, error, code, message):
        def end() -> None:
            raise error

        monkeypatch.setattr(cli_main.LazyCommand, "load", lambda self: click.Command("doctor", callback=end))
        result = run("doctor")
        assert result.exit_code == code
        assert message in result.stderr

    def test_returned_exit_code(self, run, monkeypatch):
        missed = click.Command("bench", callback=lambda: 3)
        monkeypatch.setattr(cli_main.LazyCommand, "load", lambda self: missed)
        assert run("bench").exit_code == 3

    def test_home_lasts_for_one_command_line(self, run, tmp_path, home):
        other = tmp_path / "other"
        listed = json.loads(run("--home", str(other), "model", "list", "--json").stdout)
        assert listed["models"][0]["path"] == str(other / "models/smollm2")
        listed = json.loads(run("model", "list", "--json").stdout)
        assert listed["models"][0]["path"] == str(home / "models/smollm2")


class TestQuestions:
    def test_flags_then_file(self, tmp_path):
        (tmp_path / "q.txt").write_bytes(
            "\ufeff# mine\n\nWhen does it end?\n  # not this\n 谁是甲方？ \n".encode()
        )
        asked = gather_questions(["First?"], str(tmp_path / "q.txt"))
        assert asked == ["First?", "When does it end?", "谁是甲方？"]

    def test_stdin(self, run, contract):
        result = run("ask", contract, "--questions", "-", input="# only a comment\n")
        assert result.exit_code == 2
        assert "no question" in result.stderr

    def test_none(self):
        with pytest.raises(UsageError, match="no question"):
            gather_questions([], None)

    def test_wrong_encoding(self, tmp_path):
        (tmp_path / "q.txt").write_bytes("谁是甲方？".encode("gbk"))
        with pytest.raises(EncodingError, match=r"q\.txt is not UTF-8"):
            gather_questions([], str(tmp_path / "q.txt"))

    def test_chat_lines_end_with_stdin(self, monkeypatch):
        import io

        monkeypatch.setattr(sys, "stdin", io.StringIO("one\n\n  two\nthree"))
        assert list(_lines(interactive=False)) == ["one", "two", "three"]


class TestAnswers:
    def test_citation_is_one_line_with_page_and_clause(self):
        assert citation_line(CITATION, name_document=False) == 'p. 12, clause 4.2: "The term ends on 1 May."'

    def test_document_is_named_when_there_are_several(self):
        assert citation_line(CITATION, name_document=True).startswith("contract.pdf, p. 12")

    def test_text_without_numbering(self):
        plain = Citation("a.txt", 1, "", "x", 0, 1, 1.0)
        assert citation_line(plain, name_document=False) == 'p. 1: "x"'

    def test_answer_then_citations(self, capsys):
        print_answer(
            Answer("When?", " On 1 May. ", [CITATION], TurnMetrics()), streamed=False, name_document=False
        )
        assert capsys.readouterr().out == 'On 1 May.\n  p. 12, clause 4.2: "The term ends on 1 May."\n\n'

    def test_warnings_go_to_stderr_and_only_when_due(self, capsys):
        warn_about(Answer("", "", [], TurnMetrics()))
        assert capsys.readouterr() == ("", "")
        warn_about(Answer("", "", [], TurnMetrics(status="degraded", reason="disk full", corrupt_blocks=2)))
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            "warning: degraded: disk full",
            "warning: 2 stored blocks were damaged and have been recomputed",
        ]


class TestOutput:
    def test_json_is_one_strict_line(self, capsys):
        output.emit_json(
            {
                "metrics": TurnMetrics(turn=2),
                "p": Path("x"),
                "n": np.float32(0.5),
                "bad": math.nan,
                "s": "第一条\n",
            }
        )
        line = capsys.readouterr().out
        assert line.count("\n") == 1
        parsed = json.loads(line)
        assert parsed["metrics"]["turn"] == 2
        assert (parsed["p"], parsed["n"], parsed["bad"], parsed["s"]) == ("x", 0.5, None, "第一条\n")

    def test_table_keeps_rows_whole_in_a_pipe(self, capsys):
        output.table(
            "Policies", ("policy", "waste", "loads"), [("graded", 0.25, 12345), ("x" * 100, None, 1)]
        )
        out = capsys.readouterr().out
        assert "Policies" in out and "0.250" in out and "12,345" in out and "–" in out
        assert any("x" * 100 in line for line in out.splitlines())

    def test_progress_off_a_terminal_is_a_line_every_ten_seconds(self, capsys, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
        with output.progress("reading") as update:
            for second in range(26):
                now[0] = float(second)
                update(100 * second, 2500)
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            "reading: 1,000 of 2,500 tokens, 100 tokens/s, 15 s left",
            "reading: 2,000 of 2,500 tokens, 100 tokens/s, 5 s left",
            "reading: 2,500 of 2,500 tokens, 100 tokens/s",
        ]

    def test_short_work_says_nothing(self, capsys):
        with output.progress("reading") as update:
            update(1, 1)
        assert capsys.readouterr() == ("", "")


class TestDoctorAndModel:
    def test_doctor_says_one_line_a_capability(self, run):
        from zerolayer.cli.doctor import CHECKS

        result = run("doctor")
        lines = result.stdout.splitlines()
        assert len(lines) == len(CHECKS)
        assert {line.split()[0] for line in lines} <= {"OK", "FALLBACK", "MISSING"}
        assert result.exit_code == (1 if "MISSING" in result.stdout else 0)

    def test_doctor_json(self, run):
        result = run("doctor", "--json")
        report = json.loads(result.stdout)
        assert report["ok"] is (result.exit_code == 0)
        by_name = {check["name"]: check for check in report["checks"]}
        assert by_name["python"]["status"] == "OK"
        assert by_name["default model"]["detail"].endswith("zerolayer model add smollm2")

    def test_doctor_exits_1_when_the_store_cannot_be_written(self, run, tmp_path):
        (tmp_path / "file").write_text("")
        result = run(
            "--home", str(tmp_path / "home"), "doctor", env={"ZEROLAYER_HOME": str(tmp_path / "file/x")}
        )
        assert result.exit_code == 0  # --home wins over the environment
        result = run("doctor", env={"ZEROLAYER_HOME": str(tmp_path / "file/x")})
        assert result.exit_code == 1
        assert any(line.startswith("MISSING   store directory") for line in result.stdout.splitlines())

    def test_model_list(self, run):
        listed = run("model", "list").stdout
        assert "smollm2" in listed and "qwen2.5-coder-0.5b" in listed
        first, *_ = json.loads(run("model", "list", "--json").stdout)["models"]
        assert (first["name"], first["present"], first["size"]) == ("smollm2", False, 0)
