"""One act on one transaction: guard → ask → act → prove, live or in files."""
