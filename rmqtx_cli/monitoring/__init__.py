"""`rmqtx check`: measured, judged, remembered, said."""
