"""Attention as its definition says it, in NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture(scope="session")
def numpy_allowed():
    """A function that says which pairs `(B, H, T, S)` a mask allows, from the parts of an `AttentionMask`."""

    def allowed(shape, pairs=True, queries=True, keys=True, causal=False, window=None, offset=0):
        def near(query, key):
            position = query + offset
            return (not causal or key <= position) and (window is None or abs(position - key) < window)

        rules = np.array([[near(query, key) for key in range(shape[3])] for query in range(shape[2])])
        queries = queries if queries is True else queries[:, None, :, None]
        keys = keys if keys is True else keys[:, None, None, :]
        return np.broadcast_to(rules & pairs & queries & keys, shape)

    return allowed


@pytest.fixture(scope="session")
def numpy_attention(numpy_softmax):
    """A function that computes attention and its gradients in float64, one head of one sentence at a time.

    It takes query `(B, T, H, D)`, key `(B, S, G, D)`, value `(B, S, G, E)`, the pairs allowed `(B, H, T, S)`, the
    gradient of the context, and the dropout_mask that multiplies the weights.
    """

    def attend(query, key, value, allowed, grad_output=None, dropout_mask=None):
        query, key, value = (np.asarray(each, "float64") for each in (query, key, value))
        (batch, length, heads, width), members = query.shape, query.shape[2] // key.shape[2]
        context = np.zeros((batch, length, heads, value.shape[3]))
        weights = np.zeros((batch, heads, length, key.shape[1]))
        grad_output = np.zeros_like(context) if grad_output is None else np.asarray(grad_output, "float64")
        dropout_mask = np.ones_like(weights) if dropout_mask is None else np.asarray(dropout_mask, "float64")
        of_query, of_key, of_value = (np.zeros_like(each) for each in (query, key, value))
        for b in range(batch):
            for h in range(heads):
                q, k, v = query[b, :, h], key[b, :, h // members], value[b, :, h // members]
                w = weights[b, h] = numpy_softmax(q @ k.T / width**0.5, allowed[b, h])
                context[b, :, h] = (w * dropout_mask[b, h]) @ v
                of_weights = grad_output[b, :, h] @ v.T * dropout_mask[b, h]
                of_scores = w * (of_weights - (w * of_weights).sum(axis=-1, keepdims=True)) / width**0.5
                of_query[b, :, h] = of_scores @ k
                of_key[b, :, h // members] += of_scores.T @ q
                of_value[b, :, h // members] += (w * dropout_mask[b, h]).T @ grad_output[b, :, h]
        return SimpleNamespace(context=context, weights=weights, gradients=(of_query, of_key, of_value))

    return attend
