"""An evaluation as one page of HTML: nothing on it runs, nothing is fetched, and all that models said is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files

from toolkit.evaluation.runs import CandidateTrials
from toolkit.evaluation.statistics import PairedDifference
from toolkit.evaluation.summary import ALL_KINDS, CandidateSummary, EvaluationSummary, Score
from toolkit.evaluation.tasks import EvaluationTask, TaskSet
from toolkit.evaluation.trials import Trial
from toolkit.json_text import write_json
from toolkit.visible_text import escape_in_text

__all__ = ["write_report"]


def write_report(summary: EvaluationSummary, outcomes: Sequence[CandidateTrials], tasks: TaskSet) -> str:
    """Return the page: the table of classes, the differences, the reasons, and each task with what was done.

    Args:
        summary: The figures.
        outcomes: The outcomes of each candidate.
        tasks: The tasks.
    """
    style = files("toolkit.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    parts = [
        _draw_scores(summary),
        _draw_differences(summary),
        _draw_costs(summary),
        _write_reasons(summary),
        _write_tasks(outcomes, tasks),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Evaluation of tools</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>Evaluation of tools</h1>\n"
        f"<p>{len(tasks.tasks)} tasks, {len(summary.candidates)} candidates. Intervals are at 95&nbsp;%: where that of "
        "a difference holds zero, the tasks do not tell the two apart.</p>\n"
        f"{''.join(parts)}</body>\n</html>\n"
    )


def _show_text(text: str) -> str:
    """Return a text from anywhere as HTML that shows it."""
    return escape(escape_in_text(text), quote=True)


def _write_table(title: str, head: Iterable[str], rows: Iterable[str]) -> str:
    cells = "".join(f'<th scope="col"{" class=number" if place else ""}>{cell}</th>' for place, cell in enumerate(head))
    body = "\n".join(rows)
    return (
        f'<h2>{title}</h2>\n<div class="scroll"><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{body}\n'
        "</tbody></table></div>\n"
    )


def _write_row(name: str, cells: Iterable[str], *, is_total: bool = False) -> str:
    inner = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f'<tr{" class=all" if is_total else ""}><th scope="row">{_show_text(name)}</th>{inner}</tr>'


def _draw_scores(summary: EvaluationSummary) -> str:
    head = ["Solved", *(_show_text(each.label) for each in summary.candidates)]
    rows = [
        _write_row(kind, [_write_score(each.scores[kind]) for each in summary.candidates], is_total=kind == ALL_KINDS)
        for kind in (*summary.kinds, ALL_KINDS)
    ]
    return _write_table("Solved tasks", head, rows)


def _write_score(score: Score) -> str:
    if not score.tasks:
        return "-"
    share = 100 * score.solved / score.tasks
    # A width in a style attribute would need a looser policy; a meter needs none.
    return (
        f'{score.solved} of {score.tasks}<br><meter min="0" max="100" value="{share:.0f}"></meter>'
        f"<br><small>{share:.0f} % ({score.interval})</small>"
    )


def _draw_differences(summary: EvaluationSummary) -> str:
    if not summary.comparisons:
        return ""
    against = summary.comparisons[0].against
    head = ["Points more", *(_show_text(each.label) for each in summary.comparisons)]
    rows = [
        _write_row(
            kind,
            [_write_difference(each.differences[kind]) for each in summary.comparisons],
            is_total=kind == ALL_KINDS,
        )
        for kind in (*summary.kinds, ALL_KINDS)
    ]
    return _write_table(f"Differences from {_show_text(against)}, on the same tasks", head, rows)


def _write_difference(paired: PairedDifference) -> str:
    if not paired.tasks:
        return "-"
    tone = "" if not paired.is_clear else "good" if paired.difference > 0 else "bad"
    return (
        f'<span class="{tone}">{100 * paired.difference:+.0f}</span> <small>({paired.interval})<br>'
        f"{paired.gained} gained, {paired.lost} lost, p = {paired.p_value:.3f}</small>"
    )


def _draw_costs(summary: EvaluationSummary) -> str:
    rows = [
        _write_row(
            each.label,
            [f"{each.tokens:.0f}", f"{each.output_tokens:.0f}", f"{each.requests:.1f}", f"{each.seconds:.2f}"],
        )
        for each in summary.candidates
    ]
    return _write_table("For one task", ["", "tokens", "of these written", "requests", "seconds"], rows)


def _write_reasons(summary: EvaluationSummary) -> str:
    names = list(dict.fromkeys(reason for each in summary.candidates for reason in each.reasons))
    head = ["Why not", *(_show_text(each.label) for each in summary.candidates)]
    rows = [_write_row(name, [str(each.reasons.get(name, 0)) for each in summary.candidates]) for name in names]
    return _write_table("Reasons for failure", head, rows) + "".join(_list_problems(summary.candidates))


def _list_problems(candidates: Iterable[CandidateSummary]) -> Iterator[str]:
    for each in candidates:
        if each.problem:
            yield f'<p class="bad">{_show_text(each.label)} was given up: {_show_text(each.problem)}</p>\n'


def _write_tasks(outcomes: Sequence[CandidateTrials], tasks: TaskSet) -> str:
    head = ["Task", *(_show_text(outcome.candidate.label) for outcome in outcomes)]
    rows = [
        f'<tr><th scope="row">{_show_text(task.id)}<br><small>{_show_text(task.prompt)}</small>'
        f"{_write_expected(task)}</th>"
        f"{''.join(_write_trial(outcome.trials.get(task.id)) for outcome in outcomes)}</tr>"
        for task in tasks.tasks
    ]
    return _write_table("Each task", head, rows)


def _write_expected(task: EvaluationTask) -> str:
    lines = [f"{call.tool} {write_json(call.arguments)}" for call in task.calls or ()]
    lines += [f"says {' or '.join(wordings)}" for wordings in task.says]
    shown = "\n".join(map(_show_text, lines)) or "no call"
    return f"<details><summary><small>expected</small></summary><pre>{shown}</pre></details>"


def _write_trial(trial: Trial | None) -> str:
    if trial is None:
        return "<td>-</td>"
    tone, title = ("good", "solved") if trial.is_solved else ("bad", trial.reason)
    lines = [f"{name} {write_json(arguments)}" for name, arguments in trial.calls]
    lines += [f"refused: {text}" for text in trial.refused]
    lines += [trial.answer] if trial.answer else []
    lines += [trial.error] if trial.error else []
    shown = "\n".join(map(_show_text, lines))
    return f'<td><details><summary class="{tone}">{_show_text(title)}</summary><pre>{shown}</pre></details></td>'
