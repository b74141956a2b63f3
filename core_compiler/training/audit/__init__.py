"""Audits of a run: receipts, replay, the first difference of two runs, and injected faults."""
