"""Which of the hosts that fit is the best, without looking at all of them."""
