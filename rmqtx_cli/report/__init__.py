"""The report: gathers numbers in one pass over transactions, arranges them as a document, renders HTML or Markdown."""
