"""What the page shows, written to files: tables, a report, graphs for Model Explorer."""
