"""`drawbridge completion`: what a shell, or kubectl, needs to complete the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cli.session import Command

NAME, VARIABLE = "drawbridge", "_DRAWBRIDGE_COMPLETE"
KUBECTL = """\
#!/bin/sh
# Save this as kubectl_complete-drawbridge, executable, on the PATH: kubectl completes its plugins with it.
COMP_WORDS="drawbridge $*" COMP_CWORD=$# _DRAWBRIDGE_COMPLETE=bash_complete kubectl-drawbridge | cut -d, -f2
echo :4
"""
SHELLS = ("bash", "zsh", "fish", "kubectl")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands and options.

    For example: source <(drawbridge completion bash). With kubectl, as its comment says.
    """
    click.echo(KUBECTL if shell == "kubectl" else _script(shell), nl=False)


def _script(shell: str) -> str:
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"{shell} is not supported")
    # As click's own source() without its check of the version of bash, which starts one.
    script = found(click.Group(NAME), {}, NAME, VARIABLE)
    return script.source_template % script.source_vars()
