"""L-BFGS."""

import math

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.optim._elementwise import at_least_0, one_element
from tabtorch.optim._fused import update_all
from tabtorch.optim.optimizer import Optimizer, _get_value

__all__ = ["LBFGS"]

#: steps of the history that are sent together
_PIECE = 8


def _read(loss, *tensors):
    """The loss and some tensors of one element, as floats, in one read."""
    if isinstance(loss, torch.Tensor):
        like = tensors[0]
        return torch.stack([t.detach().reshape(()).to(like) for t in (loss, *tensors)]).tolist()
    return [float(loss), *(torch.stack(tensors).tolist() if tensors else ())]


def _lowest(a, b, bounds=None):
    """The minimum, within bounds, of the cubic through two points with their slopes."""
    (x1, f1, g1, *_), (x2, f2, g2, *_) = a, b
    low, high = bounds or (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if square < 0 or square != square:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


def _line_search(evaluate, t, d_norm, start, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_ls=25):
    """A step that meets the strong Wolfe conditions: (its point, number of evaluations).

    A point is (t, value, slope, gradient, largest of the gradient); ``evaluate(t)`` gives one; ``start`` is that of t = 0.
    """
    _, f, slope, *_ = start
    new = evaluate(t)
    evaluations = 1
    previous = start
    done = False
    steps = 0
    bracket = None
    while steps < max_ls:  # until an interval is found with a good point in it
        t = new[0]
        if new[1] > f + c1 * t * slope or (steps > 1 and new[1] >= previous[1]):
            bracket = [previous, new]
            break
        if abs(new[2]) <= -c2 * slope:
            bracket = [new]
            done = True
            break
        if new[2] >= 0:
            bracket = [previous, new]
            break
        bounds = t + 0.01 * (t - previous[0]), t * 10
        t = _lowest(previous, new, bounds)
        previous, new = new, evaluate(t)
        evaluations += 1
        steps += 1
    if bracket is None:
        bracket = [start, new]
    # The interval is narrowed until such a point is hit.
    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and steps < max_ls:
        first, last = sorted(p[0] for p in bracket)
        if (last - first) * d_norm < tolerance_change:
            break
        t = _lowest(*bracket)
        margin = 0.1 * (last - first)
        if min(last - t, t - first) < margin:  # close to an end: not twice
            if stuck or t >= last or t <= first:
                t = last - margin if abs(t - last) < abs(t - first) else first + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new = evaluate(t)
        evaluations += 1
        steps += 1
        if new[1] > f + c1 * t * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(new[2]) <= -c2 * slope:
                done = True
            elif new[2] * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    return bracket[low if len(bracket) > 1 else 0], evaluations


def _cubic_interpolate(x1, f1, g1, x2, f2, g2, bounds=None):
    """PyTorch's function of this name: the minimum, within bounds, of the cubic with these values and slopes at x1 and x2."""
    return _lowest((x1, f1, g1), (x2, f2, g2), bounds)


def _strong_wolfe(obj_func, x, t, d, f, g, gtd, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_ls=25):
    """PyTorch's function of this name, which libraries import: (value, gradient, step, number of evaluations).

    ``obj_func(x, t, d)`` gives the value at x + t·d and its gradient; f, g and gtd are value, gradient and slope at x.
    """

    def evaluate(t):
        value, gradient = obj_func(x, t, d)
        return t, float(value), float(gradient.dot(d)), gradient

    start = (0.0, float(f), float(gtd), g)
    point, evaluations = _line_search(evaluate, t, float(d.abs().max()), start, c1, c2, tolerance_change, max_ls)
    return point[1], point[3], point[0], evaluations


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal, 1980). ``line_search_fn``: None or "strong_wolfe". One group of parameters only.

    ``step`` needs a closure. Its decisions depend on values: it reads from the device, all together, once for a direction
    and once for each evaluation.
    """

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        one_element(lr)
        at_least_0(learning_rate=lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _gather_flat_grad(self):
        views = []
        for p in self._params:
            g = (torch.zeros_like(p) if p.grad is None else p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(
                -1
            )
            views.append(torch.view_as_real(g.resolve_conj()).reshape(-1) if g.is_complex() else g)
        return torch.cat(views, 0)

    def _add_grad(self, step_size, update):
        """p += step_size · its part of ``update``."""
        parts = []
        at = 0
        for p in self._params:
            n = p.numel() * (2 if p.is_complex() else 1)
            part = update[at : at + n]
            at += n
            parts.append(torch.view_as_complex(part.view(*p.shape, 2)) if p.is_complex() else part.view(p.shape))
        update_all(_move, self._params, parts, {}, {"t": step_size})

    @torch.no_grad()
    def step(self, closure):
        """Makes up to ``max_iter`` iterations. ``closure``: computes the loss and the gradients again, and returns the loss."""
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        closure = torch.enable_grad()(closure)
        group = self.param_groups[0]
        lr = _get_value(group["lr"])
        max_iter, max_eval, history = group["max_iter"], group["max_eval"], group["history_size"]
        tolerance_grad, tolerance_change = group["tolerance_grad"], group["tolerance_change"]
        search = group["line_search_fn"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        original = closure()
        grad = self._gather_flat_grad()
        loss, largest = _read(original, grad.abs().max())
        evaluations = 1
        state["func_evals"] += 1
        if largest <= tolerance_grad:
            return original

        d, t, previous = state.get("d"), state.get("t"), state.get("prev_flat_grad")
        memory = [state.get(k) for k in ("old_dirs", "old_stps", "ro", "H_diag")]
        before = state.get("prev_loss")
        n_iter = 0
        while n_iter < max_iter:
            n_iter += 1
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                d = -grad
                memory = [[], [], [], 1]
                slope, d_norm, total = _read(grad.dot(d), d.abs().max(), grad.abs().sum())
                t = min(1.0, 1.0 / total) * lr
            else:
                y = grad - previous
                s = d * t
                ys = y.dot(s)
                # As if ys were large enough, so that this is read together with the slope; if it is not, once more.
                longer = [[*old, new][-history:] for old, new in zip(memory, (y, s, 1.0 / ys), strict=False)]
                longer.append(ys / y.dot(y))
                d = self._direction(grad, longer, state)
                good, slope, d_norm = _read(ys, grad.dot(d), d.abs().max())
                if good > 1e-10:
                    memory = longer
                else:
                    d = self._direction(grad, memory, state)
                    slope, d_norm = _read(grad.dot(d), d.abs().max())
                t = lr
            previous = grad
            before = loss
            if slope > -tolerance_change:
                break

            used = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = [p.clone() for p in self._params]

                def evaluate(t, d=d, start=start):
                    self._add_grad(t, d)
                    value = closure()
                    g = self._gather_flat_grad()
                    for p, old in zip(self._params, start, strict=True):
                        p.copy_(old)
                    value, gtd, most = _read(value, g.dot(d), g.abs().max())
                    return t, value, gtd, g, most

                (t, loss, _, grad, largest), used = _line_search(
                    evaluate, t, d_norm, (0, loss, slope, grad, largest), max_ls=max_eval - evaluations
                )
                self._add_grad(t, d)
            else:
                self._add_grad(t, d)
                if n_iter != max_iter:  # after the last one nobody asks
                    value = closure()
                    grad = self._gather_flat_grad()
                    loss, largest = _read(value, grad.abs().max())
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if (
                n_iter == max_iter
                or evaluations >= max_eval
                or largest <= tolerance_grad
                or d_norm * abs(t) <= tolerance_change
                or abs(loss - before) < tolerance_change
            ):
                break

        old_dirs, old_stps, ro, scale = memory
        state.update(d=d, t=t, old_dirs=old_dirs, old_stps=old_stps, ro=ro, H_diag=scale)
        state.update(prev_flat_grad=previous, prev_loss=before)
        return original

    def _direction(self, grad, memory, state):
        """Minus the approximate inverse Hessian times the gradient."""
        dirs, steps, ro, scale = memory
        most = self.param_groups[0]["history_size"]
        al = state.setdefault("al", [None] * most)

        def in_pieces(places):
            """While the history grows, each length would be a window of its own to plan: it is sent in pieces that are alike."""
            growing = len(dirs) < most
            for k, i in enumerate(places):
                if growing and k % _PIECE == 0:
                    _lazy.engine_graph.flush()
                yield i
            if growing:
                _lazy.engine_graph.flush()

        q = -grad
        for i in in_pieces(reversed(range(len(dirs)))):
            al[i] = steps[i].dot(q) * ro[i]
            q = q - dirs[i] * al[i]
        q = q * scale
        for i in in_pieces(range(len(dirs))):
            q = q + steps[i] * (al[i] - dirs[i].dot(q) * ro[i])
        return q


def _move(param, grad, *, t):
    param.add_(grad, alpha=t)
