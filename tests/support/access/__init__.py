"""Who may do what to whose things: matrices of every route, every kind of caller, own, foreign and missing objects."""
