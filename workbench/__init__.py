"""The workbench: command line, page, views.  Only the opened page imports panel."""


def load_ipython_extension(shell) -> None:
    """``%load_ext workbench``: the cell magic ``%%workbench``."""
    from workbench.notebook.magic import WorkbenchMagics

    shell.register_magics(WorkbenchMagics)
