"""What answers show of the domain's nouns, in the words of the newest microversion."""
