"""Export of the page's contents to files: tables, a report, graphs for Model Explorer."""
