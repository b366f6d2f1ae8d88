"""Colours of sparse patterns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from geomint.models.elastic_sheet import consistent_mass, triangles
from geomint.numerics.linalg import colouring
from geomint.numerics.linalg.colouring import column_colours, vertex_colours
from geomint.numerics.linalg.sparsity import pattern


def one_entry_in_a_row(found, colours):
    """Whether no two columns of a colour share a row."""
    n = found.shape[1]
    members = sparse.csr_matrix((np.ones(n, int), (np.arange(n), colours)), shape=(n, colours.max() + 1))
    return (found.astype(int) @ members).max() <= 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("rows", "columns", "share"), [(40, 40, 0.1), (300, 200, 0.02), (150, 700, 0.01)])
def test_random_patterns(monkeypatch, rows, columns, share, compiled):
    monkeypatch.setattr(colouring, "IN_PYTHON", 0 if compiled else 10**9)
    found = sparse.random(rows, columns, share, random_state=1, format="csr").astype(bool)
    colours = column_colours(found)
    assert one_entry_in_a_row(found, colours)
    assert colours.min() == 0
    # Greedy: each column meets a column of every smaller colour.
    meet = (found.T.astype(int) @ found.astype(int)).tocsr()
    for j in range(columns):
        assert set(range(colours[j])) <= set(colours[meet[j].indices])


def test_vertices():
    graph = sparse.random(200, 200, 0.03, random_state=2, format="csr")
    graph = ((graph + graph.T) > 0).tocsr()
    colours = vertex_colours(graph)
    first, second = graph.nonzero()
    assert np.all((colours[first] != colours[second]) | (first == second))
    assert colours.max() < np.max(np.diff(graph.indptr)) + 1


def test_many_unknowns():
    """1e5 unknowns of a triangle mesh, three for each node; a Python loop over columns takes minutes for this."""
    found = sparse.kron(consistent_mass(183**2, triangles(183, 183), 1.0), np.ones((3, 3)), format="csr").astype(bool)
    colours = column_colours(found)
    assert one_entry_in_a_row(found, colours)
    assert colours.max() + 1 <= 28  # at least 21, the entries of a row


def test_dense_row_ends_the_search():
    """A matrix with a full row has as many colours as columns: it counts as unstructured before any colouring."""
    n, calls = 3000, []

    def products(vectors):
        calls.append(len(vectors))
        hit = vectors != 0
        hit[:, 0] |= np.any(vectors != 0, axis=1)
        return hit | (vectors[:, :1] != 0)

    assert pattern(products, n) is None
    assert sum(calls) < n
