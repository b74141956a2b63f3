"""What the page, the notebook and the report share: navigation, updates, browser modules."""
