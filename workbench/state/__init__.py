"""What a page shows: the selection that all views share, its URL form, and the glossary."""
