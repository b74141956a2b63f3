"""Questions asked of a recording, each answered as plain data for views, advice and commands."""
