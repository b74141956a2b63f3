"""The workbench: command line, page, views.  Only the opened page imports panel."""
