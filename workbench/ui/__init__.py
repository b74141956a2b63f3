"""Code shared by the page, the notebook and the report: navigation, updates, browser modules."""
