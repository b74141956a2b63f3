"""The workbench: command line, page, views.  Only the opened page imports panel."""


def load_ipython_extension(shell) -> None:
    """Register the cell magic ``%%workbench`` for ``%load_ext workbench``."""
    from workbench.notebook.magic import WorkbenchMagics

    shell.register_magics(WorkbenchMagics)
