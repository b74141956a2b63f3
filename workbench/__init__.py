"""The workbench: command line, page, views.  Imports without panel; the page loads it when opened."""
