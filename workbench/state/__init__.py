"""The state of a page: the selection that all views share, its URL form, and the glossary."""
