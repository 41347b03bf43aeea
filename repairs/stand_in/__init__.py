"""A producer that answers a broker's checks in place of one that is gone."""
