"""The mutations: what is changed, the tests that have to notice it, and why it matters.

A row changes one line. The old text has to occur exactly once in its file; it may contain neighbouring lines to be unique.
Tests are files or node ids under tests/, and only those that `make test` runs (not slow).
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One mutation."""

    file: str  # under src/geomint
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    @property
    def title(self) -> str:
        return f"{self.file}: {self.why}"


STRUCTURE = "properties/test_structure.py::test_claims"

METHODS = [
    Row("methods/splitting.py", 'return (q, p, mech.force(q)) if force else (q, p)', 'return (q, p, *force) if force else (q, p)',
        ("test_contracts.py::test_members_of_an_ensemble_equal_single_runs[Verlet()]", "test_examples.py::test_outer_solar_system", STRUCTURE + "[Verlet()-pendula]"),
        "the carried force is not renewed after a drift (more than 16 coordinates)"),
    Row("methods/splitting.py", 'return kicks - (stages[0][0] == stages[-1][0] == "kick")', "return kicks",
        ("test_contracts.py::test_a_sweep_traces_once[Verlet()]", "test_docs.py::test_tables_are_fresh"), "forces of a step counted without sharing the last kick"),
    Row("methods/splitting.py", "two(0.211781)", "two(0.221781)", ("test_stability.py::test_numbers", "test_fast_slow.py"), "two-stage coefficient b changed in the second digit"),
    Row("methods/splitting.py", "return 0.5 - z / 12 + 1 / (6 * z)", "return 0.5 - z / 12 + 1 / (5 * z)", ("test_stability.py::test_numbers", "test_fast_slow.py"),
        "two-stage coefficient of smallest error off"),
    Row("methods/splitting.py", "three_stage(0.290485609075128726)", "three_stage(0.291485609075128726)", ("test_stability.py::test_numbers", "test_fast_slow.py"),
        "three-stage coefficient of smallest error off in the third digit"),
    Row("methods/splitting.py", "-0.06626458266981849", "-0.06626458266881849", (STRUCTURE + "[Splitting(scheme='pefrl')-harmonic-bonds]",), "PEFRL with a coefficient off by 1e-12"),
    Row("methods/composition.py", "0.23557321335935813368", "0.23557321336935813368", (STRUCTURE + "[Composition(base=Verlet(form='drift'), order=6, scheme='yoshida')-pendula]",),
        "sixth-order composition: a coefficient off by 1e-11"),
    Row("methods/composition.py", "self.base.rescale(mech, moving, gamma * dt)", "self.base.rescale(mech, moving, dt)",
        ("test_reviewed.py::test_gradients_in_params_and_mass_of_filtered_methods", "test_variational.py::test_structure_on_a_position_dependent_mass"),
        "the filter of a composed method is made for the whole step"),
    Row("methods/composition.py", "return self.base.init(mech, state, self.coefficients[-1] * dt)", "return self.base.init(mech, state, dt)",
        ("test_filtered.py::test_structure_is_found_and_reported", "test_reviewed.py::test_gradients_in_params_and_mass_of_filtered_methods"), "the first row of a composed filtered run is seen through the filter of another step"),
    Row("methods/composition.py", "max(self.order, base.order), base.symplectic", "self.order, base.symplectic", ("test_constrained.py::test_bad_arguments", "test_bad_input.py::test_messages_of_construction"),
        "a composition claims less than the order of its base"),
    Row("methods/composition.py", " or base.traits.steps > 1:", ":", ("test_constrained.py::test_bad_arguments",), "a multistep method may be composed"),
    Row("methods/order_conditions.py", '    defects = _defects(_product(factors, order), exponential({("1",): 1.0}, order), order)\n    return max(_largest(d) for d in defects)',
        '    defects = _defects(_product(factors, order), exponential({("1",): 1.0}, order), order)\n    return min(_largest(d) for d in defects)',
        ("test_measure.py", "test_bad_input.py::test_messages_of_construction"), "the order conditions of compositions are never violated"),
    Row("methods/order_conditions.py", "if nystrom and order == 4:", "if order == 4:", ("test_measure.py", "test_fast_slow.py"), "Nyström splittings count as splittings of any kinetic energy"),
    Row("methods/filtered.py", "> 1e-8 * jnp.max(jnp.abs(force))", "> 1e-4 * jnp.max(jnp.abs(force))", ("test_filtered.py::test_a_hessian_that_changes_its_pattern_is_noticed",),
        "a changed Hessian is noticed 10⁴ times later"),
    Row("methods/filtered.py", "jnp.where(converged, 0, UNSOLVED))", "jnp.where(converged, 0, 0))", ("test_filtered.py", "test_bad_input.py::test_an_unsolved_stage_is_named"),
        "pushforward Newmark accepts an unsolved equation"),
    Row("methods/filtered.py", "return a.reshape(x.shape), jnp.where(pivot > 0, 0, INDEFINITE)", "return a.reshape(x.shape), jnp.where(pivot > -jnp.inf, 0, INDEFINITE)",
        ("test_filtered.py::test_an_indefinite_matrix_stops_with_its_eigenvalue",), "an indefinite matrix goes unnoticed"),
    Row("methods/filtered.py", "if dt * highest > limit:", "if dt * highest > 2 * limit:", ("test_filtered.py::test_warnings_help",), "the warning of the stability limit comes at twice the limit"),
    Row("methods/filtered.py", "force, shift, failed = self.filter(mech, value(x), dt)\n        p = p + 0.5 * dt * force\n        return x, p, force, shift, jnp.maximum(status, failed)",
        "force, shift, failed = self.filter(mech, value(x), dt)\n        p = p + 0.5 * dt * force\n        return x, p, force, shift, failed",
        ("test_filtered.py",), "the status of a filtered step is forgotten at the next step"),
    Row("methods/gauss.py", "scale = jnp.max(jnp.abs(straight))", "scale = 1e4 * jnp.max(jnp.abs(straight))",
        (STRUCTURE + "[Gauss()-coupled-quartic]", "test_variational.py::test_on_a_constant_mass_they_are_old_friends", "test_bad_input.py::test_an_unsolved_stage_is_named"), "the stages are solved 10⁴ times less well"),
    Row("methods/gauss.py", "return q, p, jnp.where(converged, status, 1)", "return q, p, status", ("test_bad_input.py::test_an_unsolved_stage_is_named",), "unsolved stages are accepted"),
    Row("methods/lobatto.py", "return q, p, split(unknown)[1], jnp.where((status == 0) & ~converged, OFF, status)", "return q, p, split(unknown)[1], status",
        ("test_constrained.py::test_a_step_too_long_for_newton",), "unsolved stages are accepted"),
    Row("methods/lobatto.py", "[0.5 - 5**0.5 / 10, 0.5 + 5**0.5 / 10]", "[0.5 - 5**0.5 / 10.01, 0.5 + 5**0.5 / 10.01]", (STRUCTURE + "[LobattoIIIAB(stages=4)-coupled-quartic]",), "a node is off by .0002"),
    Row("methods/multistep.py", "status = jnp.maximum(failed_after[-1], failed_before[-1])", "status = failed_after[-1]", ("test_constrained.py::test_a_start_off_the_constraint", "test_constrained.py::test_multipliers_belong_to_the_saved_positions"), "a failed start backwards is ignored"),
    Row("methods/multistep.py", "(jnp.diff(positions, axis=0) + jnp.diff(lost, axis=0)) / dt", "(jnp.diff(positions, axis=0)) / dt",
        ("test_constrained.py::test_multipliers_belong_to_the_saved_positions", STRUCTURE + "[SymmetricMultistep()-pendula]"), "the starting momenta are differences of rounded positions"),
    Row("methods/multistep.py", "p = jnp.where(carry.step == 0, carry.shown, p)", "p = jnp.where(carry.step < 0, carry.shown, p)", ("test_constrained.py::test_multipliers_belong_to_the_saved_positions", STRUCTURE + "[SymmetricMultistep()-pendula]"),
        "the first momentum shown is not the given one"),
    Row("methods/multistep_coefficients.py", "> Fraction(1, 2**64):", "> Fraction(1, 2**20):", ("test_multistep_coefficients.py",), "roots isolated to 1e-6 only"),
    Row("methods/multistep_coefficients.py", "return math.sqrt(low)", "return math.sqrt(high)", ("test_multistep_coefficients.py",), "the interval of periodicity ends one window later"),
    Row("methods/multistep_coefficients.py", " + (not _value(chain[0], -1))", "", ("test_multistep_coefficients.py",), "a root −1 of σ is not counted"),
    Row("methods/multistep_coefficients.py", "elif a.count(a_j) > 1:", "elif a.count(a_j) > 2:", ("test_multistep_coefficients.py",), "double roots of ρ pass"),
    Row("methods/energy_stepping.py", "ON_AN_EDGE = 1e-9", "ON_AN_EDGE = 1e-5", ("test_first_exit.py::test_starts_on_an_edge", "test_energy_stepping.py::test_events_agree_with_exact_roots"),
        "a start near an edge counts as on it, 10⁴ times farther off"),
    Row("methods/energy_stepping.py", "TURNING = 1e-6", "TURNING = 1e-2", ("test_first_exit.py::test_starts_on_an_edge", "test_energy_stepping.py::test_events_agree_with_exact_roots", "test_energy_stepping_errors.py"),
        "a slanting start counts as a turning point"),
    Row("methods/energy_stepping.py", "reflected = wall | (a * a <= 2 * step * k)", "reflected = wall | (a * a < 2 * step * k)", ("test_first_exit.py::test_a_tie_is_reflected",), "a motion that just reaches the edge goes on at no speed"),
    Row("methods/energy_stepping.py", "(kind == UP) | (reflected & ~rising), 0.0, 1.0", "(kind == UP) | reflected, 0.0, 1.0", ("test_energy_stepping.py::test_events_agree_with_exact_roots",), "a reflection from above starts at the wrong edge"),
    Row("methods/energy_stepping.py", "if not np.all(least >= 0):", "if not np.all(least >= -0.1):", ("test_energy_stepping_errors.py::test_systems_and_starts_that_do_not_fit", "test_hard_spheres.py"), "a start a little outside the walls is accepted"),
    Row("methods/first_exit.py", "SHARP = 1e-13", "SHARP = 1e-9", ("test_energy_stepping.py::test_events_agree_with_exact_roots", "test_first_exit.py::test_grazes_are_crossed_or_missed"), "times of events are found 10⁴ times less sharply"),
    Row("methods/first_exit.py", "REACH = 2.0", "REACH = 20.0", ("test_first_exit.py",), "trials ten times as long as the quickest oscillation allows"),
    Row("methods/first_exit.py", "GRAZE = 1e-13", "GRAZE = 1e-6", ("test_first_exit.py",), "a gauge below zero by 1e-6 has only touched it"),
    Row("methods/variational.py", "work, jnp.where(converged, carry.status, 1))", "work, carry.status)", ("test_variational.py", "test_bad_input.py::test_an_unsolved_stage_is_named"), "unsolved Euler–Lagrange equations are accepted"),
    Row("methods/variational.py", "times = carry.t.value + jnp.asarray(r.nodes, q.dtype) * dt", "times = carry.t.value + 0 * jnp.asarray(r.nodes, q.dtype) * dt", ("test_variational.py",), "a force of time is taken at the beginning of the step"),
    Row("methods/variational.py", "1e-4 * jnp.max(jnp.abs(q))", "1e4 * jnp.max(jnp.abs(q))", ("test_variational.py", STRUCTURE + "[Variational()-coupled-quartic]"), "Newton's method ends 10⁸ times earlier"),
    Row("methods/runge_kutta.py", "p + dt / 6 * (f1 + 2 * f2 + 2 * f3 + f4)", "p + dt / 6 * (f1 + 2 * f2 + 2 * f2 + f4)", (STRUCTURE + "[RungeKutta4()-trimer]",), "an index is swapped"),
    Row("methods/oscillatory.py", "force, jnp.where(converged, rest, UNSOLVED)", "force, rest", ("test_oscillatory.py",), "IMEX accepts an unsolved midpoint"),
    Row("methods/oscillatory.py", "h = dt / self.inner\n", "h = dt / (self.inner + 1)\n", ("test_oscillatory.py::test_respa_without_a_slow_force_is_a_sequence_of_smaller_steps",), "RESPA's inner steps do not add up to a step"),
]

LINALG = [
    Row("linalg/newton.py", "return (size > tiny) & ~stalled", "return (size > 1e4 * tiny) & ~stalled",
        ("test_variational.py::test_on_a_constant_mass_they_are_old_friends", STRUCTURE + "[Gauss()-coupled-quartic]", STRUCTURE + "[PushforwardNewmark()-pendula]", STRUCTURE + "[Variational()-coupled-quartic]", "test_linalg.py"),
        "Newton's method ends 10⁴ times earlier"),
    Row("linalg/newton.py", "return Solution(root, size <= 1e4 * _round_off(root, scale))", "return Solution(root, size <= 1e12 * _round_off(root, scale))",
        ("test_linalg.py", "test_bad_input.py::test_an_unsolved_stage_is_named", "test_variational.py"), "an iteration that stalls at 1e-4 is accepted"),
    Row("linalg/newton.py", "return Solution(root, size <= 1e4 * _round_off(root, scale))", "return Solution(root, size >= 0)",
        ("test_linalg.py", "test_bad_input.py::test_an_unsolved_stage_is_named"), "an unsolved system is accepted"),
    Row("linalg/newton.py", "LIMIT = 50", "LIMIT = 5", ("test_linalg.py", "test_reviewed.py::test_implicit_methods_start_from_the_origin", "test_variational.py"), "five iterations at most"),
    Row("linalg/newton.py", "transpose_solve=lambda g, b: _iterate(lambda x: g(x) - b, b, size)[0],", "transpose_solve=lambda g, b: b,", ("test_linalg.py", "test_gradients.py::test_backwards_is_stored"),
        "reverse derivatives of a fixed point without its iteration"),
    Row("linalg/structure.py", "for x in (self.colours, self.order, self.diagonal, self.lower):", "for x in (self.colours, self.order, self.diagonal):", ("test_linalg.py",), "plans with different bands are equal"),
    Row("linalg/structure.py", "np.swapaxes(self.lower, -1, -2))", "self.lower)", ("test_linalg.py", "test_oscillatory.py::test_the_chain_is_solved_in_its_band", "test_constrained.py::test_solvers_agree"), "the mask of the upper blocks is that of the lower ones"),
    Row("linalg/structure.py", "return picked(before), picked(seeds), picked(after)", "return picked(after), picked(seeds), picked(before)", ("test_linalg.py", "test_oscillatory.py::test_a_long_chain", "test_constrained.py::test_solvers_agree"), "the diagonals of a band are swapped"),
    Row("linalg/structure.py", "if np.max(np.abs(i // b - j // b)) <= 1", "if np.max(np.abs(i // b - j // b)) <= 2", ("test_linalg.py",), "blocks too small for the band"),
    Row("linalg/cholesky.py", "jnp.minimum(pivot, below)", "pivot", ("test_linalg.py",), "of a band only half of the pivots are looked at"),
    Row("linalg/cholesky.py", "jnp.min(jnp.stack(d))", "jnp.min(d[-1])", ("test_linalg.py",), "only the last pivot of a block is looked at"),
    Row("linalg/cholesky.py", "jnp.where(jnp.isnan(pivots), -1.0, pivots)", "jnp.where(jnp.isnan(pivots), 1.0, pivots)", ("test_linalg.py",), "a failed factorisation counts as positive definite"),
    Row("linalg/elimination.py", "rows = _earlier(self.upper), self.through, _later(self.lower)", "rows = self.lower, self.through, self.upper", ("test_linalg.py", "test_constrained.py::test_gradients_pass_through_a_constrained_run"), "a band is not transposed for reverse derivatives"),
    Row("linalg/elimination.py", "small_apply(self.above, _later(even))", "small_apply(self.above, even)", ("test_linalg.py", "test_oscillatory.py::test_the_chain_is_solved_in_its_band"), "cyclic reduction couples to the wrong neighbour"),
    Row("linalg/conjugate.py", "(squared > (4 * eps) ** 2 * whole)", "(squared > (4e4 * eps) ** 2 * whole)", ("test_linalg.py",), "conjugate gradients end 10⁴ times earlier"),
    Row("linalg/conjugate.py", "limit: int = 2000", "limit: int = 20", ("test_linalg.py",), "twenty conjugate gradients at most"),
    Row("linalg/loops.py", "out[m + middle] = upper[a + middle] if middle < n - 1 else 0.0", "out[m + middle] = upper[a + middle] if middle < n - 2 else 0.0", ("test_constrained.py::test_machine_code_is_used_here",), "elimination misses a coupling at the end"),
    Row("linalg/sparsity.py", "return sparse.csr_matrix(found | found.T | np.eye(n, dtype=bool))", "return sparse.csr_matrix(found)", ("test_linalg.py",), "a zero on the diagonal is left out of the pattern"),
    Row("linalg/sparsity.py", "known = ((known + known.T + sparse.diags(np.ones(groups))) > 0).tocsr()", "known = ((known + sparse.diags(np.ones(groups))) > 0).tocsr()", ("test_linalg.py",), "a large pattern is not made symmetric"),
]

RUN = [
    Row("run/grid.py", "if abs(exact - steps) > 1e-6 + times_rounding:", "if abs(exact - steps) > 1e-2 + times_rounding:", ("test_bad_input.py::test_messages",), "a run may end a hundredth of a step away from t_end"),
    Row("run/grid.py", "times_rounding = 4 * np.finfo(float).eps * max(abs(t_end), abs(t0)) / dt", "times_rounding = 0.0", ("test_bad_input.py::test_messages", "test_contracts.py::test_chunked_equals_unchunked[Verlet()]"), "rounding of a late t0 counts as a part of a step"),
    Row("run/grid.py", "above = next((d for d in range(k,", "above = next((d for d in range(k + 1,", ("test_bad_input.py::test_messages",), "the proposed save_every may skip one"),
    Row("run/loop.py", "Failure(first + bad, code", "Failure(first + good, code", ("test_bad_input.py::test_a_run_that_turns_non_finite_keeps_what_it_has",), "the failing step is off by one"),
    Row("run/loop.py", "good = good if passing else (carry, n)", "good = (carry, n)", ("test_bad_input.py::test_the_outcome_does_not_depend_on_the_chunks",), "the failing step is sought from a state that had failed"),
    Row("run/loop.py", "and not np.any(seen.get(\"status\", 0)):", "and True:", ("test_bad_input.py::test_an_unsolved_stage_is_named",), "a failed status does not stop a run of finite numbers"),
    Row("run/reductions.py", "t[\"squares\"] + w * (t[\"mean\"] - mean) ** 2", "t[\"squares\"] + 0 * w * (t[\"mean\"] - mean) ** 2", ("test_reductions.py::test_reductions_are_those_of_the_rows",), "deviations between tiles are left out"),
    Row("run/reductions.py", "place = jnp.where(x == self.edges[-1], bins - 1, place)", "place = jnp.where(x == self.edges[-1], bins, place)", ("test_reductions.py::test_reductions_are_those_of_the_rows", "test_reductions.py::test_members_that_fail_are_left_out"), "the last edge of a histogram is not counted"),
    Row("run/reductions.py", 'side="right") - 1', 'side="left") - 1', ("test_reductions.py::test_reductions_are_those_of_the_rows", "test_reductions.py::test_members_that_fail_are_left_out"), "values on an edge go to the bin below"),
    Row("run/reductions.py", "counted = well & jnp.all(jnp.isfinite(x).reshape(len(x), -1), axis=1)", "counted = well", ("test_reductions.py::test_members_that_fail_are_left_out",), "values that are no numbers are counted"),
    Row("run/reductions.py", "& ~good & (save >= 0), save + i", "& ~good, save + i", ("test_reductions.py::test_looks_between_saves_change_nothing",), "a look between two saves decides whether a member has failed"),
    Row("run/reducing.py", "if (first + steps) % self.save_every == 0 else -1", "if True else -1", ("test_reductions.py::test_looks_between_saves_change_nothing", "test_bad_input.py::test_the_outcome_does_not_depend_on_the_chunks"), "a look between two saves counts as a save"),
    Row("run/reducing.py", "self.keep[here] - part.start, held.rows", "self.keep[here], held.rows", ("test_reductions.py::test_no_number_depends_on_devices_or_chunks",), "kept members of a second device are read from wrong rows"),
    Row("run/linear_maps.py", "if all(type(x) is ad.Zero for x in tangents[:where]):", "if True:", ("test_gradients.py::test_forward_mode_and_second_derivatives",), "second derivatives leave out the motion of the point"),
    Row("run/trajectory.py", "self.energy[:, :1] if self.members else self.energy[0])", "self.energy[:, :1] if self.members else self.energy[-1])", ("test_cli.py::test_run_prints_what_became_of_the_invariants", "test_plots.py"), "energy errors counted from the end"),
    Row("run/trajectory.py", "lambda mech, q, x: -mech.constraint_force(q, x)", "lambda mech, q, x: mech.constraint_force(q, x)", ("test_constrained.py::test_multipliers_belong_to_the_saved_positions",), "constraint forces with the wrong sign"),
    Row("run/trajectory.py", "lambda x: x[self.kept], system.params)", "lambda x: x[: len(self.kept)], system.params)", ("test_reductions.py::test_reductions_are_those_of_the_rows", "test_reviewed.py::test_lagrangian_members_with_their_own_params"), "velocities of kept members by the params of others"),
    Row("run/trajectory.py", "np.where(bad.any(axis=1), bad.argmax(axis=1), -1)", "np.where(bad.any(axis=1), bad.argmax(axis=1) + 1, -1)", ("test_bad_input.py::test_a_failing_member_does_not_stop_the_others", "test_reductions.py::test_members_that_fail_are_left_out"), "members fail one save later"),
    Row("run/events.py", 'np.array(["", *KINDS.values()])[self.codes]', 'np.array(["", *reversed(KINDS.values())])[self.codes]', ("test_energy_stepping.py::test_saved_loaded_and_resumed_runs_keep_their_events", "test_first_exit.py::test_a_tie_is_reflected"), "kinds of events are swapped"),
    Row("run/events.py", "return int(np.sum(self.counts[\"events\"]))", "return int(np.max(self.counts[\"events\"]))", ("test_energy_stepping.py::test_an_ensemble_counts_for_each_member",), "an ensemble counts the events of one member"),
    Row("run/ensemble.py", "kept.astype(np.int64) % members", "kept.astype(np.int64)", ("test_reductions.py::test_reductions_are_those_of_the_rows",), "keep=[-1] is not the last member"),
    Row("run/ensemble.py", "kept.max() >= members", "kept.max() > members", ("test_reductions.py::test_mistakes_are_named", "test_bad_input.py::test_messages_of_ensembles"), "a member behind the last may be kept"),
    Row("run/ensemble.py", "seeds.shape not in ((), (members,))", "seeds.ndim > 1", ("test_reductions.py::test_a_seed_for_each_member", "test_bad_input.py::test_messages_of_ensembles"), "any number of seeds is accepted"),
    Row("run/inputs.py", "1e-8 * size**2", "1e-3 * size**2", ("test_constrained.py::test_a_start_off_the_constraint",), "a start may be 1e-3 off the constraint"),
    Row("run/inputs.py", "1e-8 * size * max", "1e-3 * size * max", ("test_constrained.py::test_a_start_off_the_constraint",), "a start may leave the constraint at a speed of 1e-3"),
    Row("run/inputs.py", "if not error <= 1e-8 * max(1.0", "if not error <= 1e-4 * max(1.0", ("test_bad_input.py::test_a_wrong_derivative_by_hand_is_caught",), "a derivative by hand may be wrong by 1e-4"),
    Row("run/inputs.py", "np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)", "np.array([0, seed & 0xFFFFFFFF], np.uint32)", ("test_reductions.py::test_the_random_numbers_of_a_member", "test_reductions.py::test_a_seed_for_each_member"), "the upper half of a seed is dropped"),
    Row("run/gradients.py", "MISSED = 64", "MISSED = 64e4", ("test_gradients.py::test_rounding_is_told",), "a way back that misses the start is told 10⁴ times later"),
    Row("run/gradients.py", "return several(carry, steps % length)", "return carry", ("test_gradients.py::test_stored_memory_grows_with_the_root", "test_gradients.py::test_damped_motions_are_stored"), "the last steps of a block that is stored in pieces are left out"),
    Row("run/gradients.py", "method.traits.symmetric and not forced)", "method.traits.symmetric)", ("test_gradients.py::test_damped_motions_are_stored",), "damped motions are run backwards"),
    Row("run/gradients.py", "remade = system.constraint is not None and method.traits.steps == 1", "remade = False", ("test_gradients.py::test_backwards_is_stored_on_a_manifold",), "momenta with a normal part are differentiated as they are"),
]

ARCHIVES = [
    Row("run/sinks.py", "self.count, self.noted = rows, [self.events[:events]]", "self.count = rows", ("test_archive.py::test_an_interrupt_between_events_and_checkpoint_leaves_no_event_too_many",), "events after an interrupt are kept"),
    Row("run/sinks.py", "self.grid.times(self.writer.rows, count)", "self.grid.times(self.writer.rows - 1, count)", ("test_archive.py::test_output_exists", "test_archive.py::test_an_interrupt_between_rows_and_checkpoint_leaves_no_row_too_many"), "times on file are off by one save"),
    Row("run/archive.py", "(sequence % 2) * self.slot_bytes", "0 * self.slot_bytes", ("test_archive.py::test_a_torn_checkpoint_falls_back_to_the_one_before",), "only one checkpoint slot is used"),
    Row("run/archive.py", "if self.rows + count > self.columns[\"t\"].room:", "if self.rows + count > self.columns[\"t\"].room + 1:", ("test_archive.py::test_rows_without_room_are_refused",), "a row too many is written over what follows"),
    Row("run/archive.py", "if beside.exists() and not replace:", "if False:", ("test_archive.py::test_events_of_a_moved_archive_are_not_deleted",), "events of another run are appended to"),
    Row("run/archive.py", "    check_events(path, count)  # truncation would also lengthen a file, with zeros", "    pass", ("test_archive.py::test_a_run_does_not_go_on_without_its_events",), "missing events are replaced by zeros"),
    Row("run/fingerprint.py", "    for leaf in leaves:\n        walker.array(leaf)", "    for leaf in leaves[:0]:\n        walker.array(leaf)", ("test_archive.py::test_a_system_is_recognised_by_its_program", "test_reviewed.py::test_members_with_their_own_params_are_kept_and_resumed"), "mass and params are left out of the fingerprint"),
    Row("run/fingerprint.py", "mech.outer_force(q, 2 * q, 3.0))", "mech.outer_force(q, 0 * q, 3.0))", ("test_variational.py::test_time_of_a_force_is_right_after_a_resume", "test_archive.py::test_a_system_is_recognised_by_its_program"), "a force is fingerprinted at rest"),
    Row("run/fingerprint.py", "by_hand = [traced.call(f, q) for f in overrides.values()]", "by_hand = []", ("test_bad_input.py::test_a_run_is_not_resumed_with_another_derivative_by_hand",), "derivatives by hand are left out of the fingerprint"),
    Row("run/fingerprint.py", "                self.array(atom.val)", "                self.text(atom.aval)", ("test_archive.py::test_a_system_is_recognised_by_its_program",), "literals are left out of the fingerprint"),
    Row("run/resume.py", "if times.steps < contents.step:", "if times.steps < 0:", ("test_archive.py::test_already_beyond",), "a run may be resumed to a time before its end"),
    Row("run/resume.py", "if method is not None and method.name != contents.meta[\"method\"]:", "if method is None and False:", ("test_hard_spheres.py::test_a_run_with_walls_is_resumed_with_its_method_only",), "a run may be resumed with another method"),
    Row("run/resume.py", "max(len(run), run.grid.saves)", "len(run)", ("test_archive.py::test_a_run_interrupted_between_saves_is_saved_and_goes_on_to_its_own_end",), "a saved run has no room to go on"),
]

STATED = [
    Row("symmetries.py", "np.asarray([self.direction])\n", "np.asarray([self.direction]) / np.linalg.norm(self.direction)\n", ("test_mechanics.py::test_momentum_maps", "test_plots.py"), "Translation(direction) is normalised"),
    Row("symmetries.py", '"ij,...j->...i", self.matrix, q)', '"ji,...j->...i", self.matrix, q)', ("test_mechanics.py::test_momentum_maps",), "the matrix of a generator is transposed"),
    Row("symmetries.py", "omega[i, j], omega[j, i] = -1.0, 1.0", "omega[i, j], omega[j, i] = 1.0, -1.0", ("test_mechanics.py::test_momentum_maps",), "a plane is turned the other way"),
    Row("constraints.py", "np.where(UPPER[0] == UPPER[1], 1.0, np.sqrt(2.0))", "np.where(UPPER[0] == UPPER[1], 1.0, 1.0)", ("test_constrained.py::test_closed_forms_agree_with_newton", "test_constrained_models.py::test_heavy_top"), "entries off the diagonal of QᵀQ weigh too little"),
    Row("constraints.py", "np.array_equal(j, particles) and np.array_equal(i, particles - 1):", "np.array_equal(j, particles):", ("test_constrained.py::test_distances_join_particles_origin_and_fixed_points",), "a star of rods is taken for a chain"),
    Row("constraints.py", "np.array(still[::-1])", "np.array(still)", ("test_constrained.py::test_distances_join_particles_origin_and_fixed_points",), "fixed points are swapped"),
    Row("constraints.py", "np.all(np.asarray(lengths) > 0)", "np.all(np.asarray(lengths) >= 0)", ("test_constrained.py::test_ready_constraints_say_what_is_wrong",), "a rod of no length is accepted"),
    Row("penalty.py", "return stiff if self.before is None else stiff + self.before(*arguments)", "return stiff", ("test_variational.py::test_penalty_and_multipliers", "test_variational.py::test_errors_of_penalty"), "the fast part that was there before is dropped"),
    Row("penalty.py", "(2 * reach + 1)[:, None]", "(2 * half + 1)", ("test_variational.py::test_penalty_and_multipliers",), "averages near the ends are divided by the whole window"),
    Row("penalty.py", 'run.columns.get("q_filtered", run.q)', "run.q", ("test_variational.py::test_penalty_and_multipliers",), "multipliers are read at the plain positions"),
    Row("projection.py", "if not residual < 1e-10 * size:", "if not residual < np.inf * size:", ("test_reviewed.py::test_project",), "`project` accepts a failure"),
    Row("projection.py", "v0s = np.asarray(jax.vmap(lambda w: _tangent(manifold, system, q, w))(v0s))", "v0s = np.asarray(v0s)", ("test_processes.py::test_members_of_the_command_line_are_reproducible",), "velocities of an ensemble are not tangent"),
    Row("arithmetic.py", "(a - a_seen) + (b - b_seen)", "b - b_seen", ("test_arithmetic.py",), "the error of a sum assumes the first number to be larger"),
    Row("arithmetic.py", "return self + (-decrement)", "return Compensated(self.value - decrement, self.lost)", ("test_arithmetic.py", "test_constrained.py::test_multipliers_belong_to_the_saved_positions"), "differences are not compensated"),
    Row("series.py", "math.factorial(k) * x if k > 1 else x for k, x in enumerate(series)", "math.factorial(k) * x if k > 2 else x for k, x in enumerate(series)", ("test_series.py",), "a second derivative is a coefficient"),
    Row("series.py", "else -there[0][k]", "else there[0][k]", ("test_series.py",), "a subtracted series keeps its sign"),
    Row("series.py", "max(0, k + 1 - len(y)), min(k + 1, len(x)))]) for k in ends)", "max(1, k + 1 - len(y)), min(k + 1, len(x)))]) for k in ends)", ("test_series.py",), "a matrix product leaves out its first term"),
    Row("intervals.py", 'STEPS = ("sign", "floor", "ceil", "round", "atan2")', 'STEPS = ("sign", "ceil", "round", "atan2")', ("test_intervals.py",), "a jump of floor is not noticed"),
    Row("intervals.py", "jnp.maximum(up(left + up(s * rise)), up(right + up(up(width - s) * fall)))", "jnp.minimum(up(left + up(s * rise)), up(right + up(up(width - s) * fall)))", ("test_intervals.py",), "the smaller of two bounds is taken"),
    Row("interval_rules.py", "ROUNDED = 4", "ROUNDED = 0", ("test_intervals.py",), "ranges without room for rounding"),
    Row("interval_rules.py", "return (x.low <= 0) & (x.high >= 0)", "return (x.low < 0) & (x.high > 0)", ("test_intervals.py",), "an interval that ends at zero does not contain it"),
    Row("interval_rules.py", "return ~(jnp.floor(last + margin) < jnp.ceil(first - margin))", "return ~(jnp.floor(last + margin) <= jnp.ceil(first - margin))", ("test_intervals.py",), "a maximum of a wave is passed over"),
]

ROWS = [*METHODS, *LINALG, *RUN, *ARCHIVES, *STATED]
