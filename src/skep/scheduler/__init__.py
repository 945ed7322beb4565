"""The scheduler as a service: messages on one side, the synchronizer on the other, `skep.placement` between them."""
