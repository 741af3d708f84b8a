"""Training by `model.fit`: the loss, the optimizers, the callbacks, and going on after a stop."""
