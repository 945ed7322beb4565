"""`skep completion`: what a shell needs to complete commands and options by Tab."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SKEP_COMPLETE"
"""By which the shell asks for completions."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script by which SHELL completes commands and options of skep. It asks skep, so it is always current.

    bash: put it where bash-completion looks, or source it in ~/.bashrc. zsh: source it in ~/.zshrc, after compinit.
    fish: put it into ~/.config/fish/completions/skep.fish.

    \b
    Example: skep completion bash > ~/.local/share/bash-completion/completions/skep
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "skep", VARIABLE)
    click.echo(made.source_template % made.source_vars())
