"""Options of every command, before or after its name, and what a command does its work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from cli.cluster import PASSING, Cluster, cluster_of
from cli.errors import FINE, Failure
from cli.output import FORMS, Form, Output, Part, Report, printable
from kube.connection import Impersonation

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Report)

GIVEN = "drawbridge.options"
EPILOG = "Options of all commands (-n, -A, -o, --context, --as, --yes, ...): drawbridge --help"


@dataclass(frozen=True)
class Options:
    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    output: Form = "table"
    no_color: bool = False
    yes: bool = False
    as_user: str | None = None
    as_group: tuple[str, ...] = ()

    @property
    def impersonation(self) -> Impersonation | None:
        """UsageError for groups without a user, as the API server has it."""
        if self.as_group and not self.as_user:
            raise click.UsageError("--as-group needs --as")
        return Impersonation(self.as_user, self.as_group) if self.as_user else None


Connect = Callable[[Options], Cluster]


class Session:
    """One call of the command: its options, its output, and the cluster, connected to when it is first used."""

    def __init__(self, options: Options, connect: Connect) -> None:
        self.options, self._connect = options, connect
        self.output = Output(options.output, color=not options.no_color)

    @cached_property
    def cluster(self) -> Cluster:
        """NotConfigured."""
        return self._connect(self.options)

    @property
    def namespace(self) -> str:
        """Of -n, else of the context; for commands about one object."""
        return self.options.namespace or self.cluster.namespace

    @property
    def scope(self) -> str | None:
        """The namespace to list, or None for all; for commands about many objects."""
        return None if self.options.all_namespaces else self.namespace

    def show(self, report: Report) -> None:
        self.output.show(report, self._parts)

    def follow(self, read: Callable[[], T], watch: bool) -> T:
        """Show the report that *read* returns, and return it; with *watch*, again and again until Ctrl-C."""
        if watch:
            self.output.watch(self._with_patience(read), self._parts)
            raise SystemExit(FINE)
        report = read()
        self.show(report)
        return report

    def _with_patience(self, read: Callable[[], T]) -> Callable[[], T]:
        """The last report that *read* returned while the API server is away, which is said."""
        last: T | None = None
        said = ""

        def again() -> T:
            nonlocal last, said
            try:
                last, said = read(), ""
            except PASSING as error:
                if last is None:
                    raise
                if (now := f"{error}; trying again") != said:
                    self.output.say(now)
                said = now
            return last

        return again

    def _parts(self, report: Report) -> Iterable[Part]:
        return report.parts(self.cluster.now())

    def confirm(self, *question: str) -> None:
        """Ask before a write, unless --yes; Failure when the user declines, or there is no terminal to ask at.

        *question* are its lines.
        """
        if self.options.yes:
            return
        try:
            agreed = click.confirm("\n".join(map(printable, question)), err=True)
        except click.Abort:
            raise Failure("not confirmed; nothing was changed", "answer y, or repeat it with --yes") from None
        if not agreed:
            raise Failure("declined; nothing was changed")


def connect(options: Options) -> Cluster:
    return cluster_of(options.kubeconfig, options.context, options.impersonation)


def pass_session(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Call *function* with the Session of the call first."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        root = click.get_current_context().find_root()
        return function(Session(Options(**root.meta.get(GIVEN, {})), root.obj or connect), *args, **kwargs)

    return called


def log_no_decisions() -> None:
    """Drop what webhooks and planners log: their decisions are only predictions, and standard output is a document."""
    import structlog  # which commands that predict nothing do not load

    def drop(*_: object) -> NoReturn:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])


def shared_options(hidden: bool) -> list[click.Parameter]:
    def remember(context: click.Context, parameter: click.Parameter, value: object) -> object:
        name = parameter.name or ""
        if context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT):
            context.find_root().meta.setdefault(GIVEN, {})[name] = value
        return value

    def option(*names: str, **attributes: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=remember, hidden=hidden, **attributes)

    return [
        option("--context", metavar="NAME", help="Use this context of the kubeconfig."),
        option(
            "--kubeconfig",
            metavar="PATH",
            help="Use this kubeconfig instead of KUBECONFIG or ~/.kube/config.",
        ),
        option("-n", "--namespace", metavar="NAME", help="Use this namespace instead of the context's."),
        option("-A", "--all-namespaces", is_flag=True, help="Use all namespaces."),
        option("--as", "as_user", metavar="USER", help="Impersonate this user or ServiceAccount."),
        option("--as-group", metavar="GROUP", multiple=True, help="Impersonate this group; may be repeated."),
        option(
            "-o",
            "--output",
            type=click.Choice(FORMS),
            default="table",
            show_default=True,
            help="Output format.",
        ),
        option("--no-color", is_flag=True, help="Print no colors, as with NO_COLOR or without a terminal."),
        option("-y", "--yes", is_flag=True, help="Do not ask before a change."),
    ]


def selector_option(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    return click.option(
        "-l",
        "--selector",
        metavar="LABELS",
        default="",
        help=f"Only {what} with these labels, such as app=web,tier!=test.",
    )


class ObjectName(click.ParamType[str]):
    """A segment of a path: one that ends it, or adds another, would address something else."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip(".") or not {*"/?#%"}.isdisjoint(value):
            self.fail(f"{value!r} is no name of an object", param, ctx)
        return value


object_name = ObjectName()
watch_option = click.option(
    "-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C."
)


class Command(click.Command):
    """A command that takes the shared options, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["params"] = [*(kwargs.get("params") or ()), *shared_options(hidden=True)]
        super().__init__(*args, **{"epilog": EPILOG} | kwargs)


class Commands(Command, click.Group):
    """A command with sub-commands: `drawbridge rollout pause`."""

    command_class = Command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole first sentences: click cuts them off."""
        found = {name: self.get_command(context, name) for name in self.list_commands(context)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(200)) for name, each in found.items() if each])
