"""`probe`: test transactions that rmqtx sends to a live broker and follows from the half message to the end."""
