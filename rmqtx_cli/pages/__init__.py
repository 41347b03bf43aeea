"""Pages for people: summaries, drawings, lists of stores, receipts, the glossary."""
