"""The exact posterior of a Gaussian process, by the Cholesky root of the observations' covariance.

With y = f(X) + noise and L L^T = K + noise^2 I, everything follows from the root L and from the whitened
observations z = L^-1 (y - m(X)). With the whitened rows u(x) = L^-1 k(X, x),

    mean(x) = m(x) + u(x)^T z,    var(x) = k(x, x) - |u(x)|^2,    log p(y) = -sum_t (z_t^2 + log 2 pi) / 2 + log L_tt,

and one more observation at x adds the row (u(x)^T, s) to L and the number (y - mean(x)) / s to z, where
s^2 = var(x) + noise^2. Leading dimensions are batches; the prior mean m is the caller's to subtract and to add.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


def noisy_root(
    covariance: Float[Tensor, "*#batch t t"], variance: Float[Tensor, " *#batch"] | float
) -> Float[Tensor, "*batch t t"]:
    """The lower root of K + variance I.

    Args:
        covariance: K, ``*batch x t x t``.
        variance: Of the noise (or a jitter), broadcast over the batch.

    Returns:
        ``*batch x t x t``, lower triangular.
    """
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype)
    diagonal = torch.as_tensor(variance, dtype=covariance.dtype)[..., None, None] * eye
    root: Tensor = torch.linalg.cholesky(covariance + diagonal)
    return root


def log_density(white: Float[Tensor, "*batch"], std: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The log density of each observation, given those before it.

    Args:
        white: How far it is from its predicted mean, in units of ``std``.
        std: The predicted standard deviation; the diagonal of the root.

    Returns:
        The shape of ``white``.
    """
    return -(white.square() + math.log(2 * math.pi)) / 2 - std.log()


class GPPosterior(NamedTuple):
    """What t observations say, for every function of a batch."""

    root: Float[Tensor, "*batch t t"]
    """The lower root of the observations' covariance."""
    white: Float[Tensor, "*batch t"]
    """The observations less the prior mean, whitened by the root."""

    def at(self, *index: Int[Tensor, "..."]) -> "GPPosterior":
        """The posteriors of some functions of the batch.

        Args:
            index: One index for each batch dimension; they are broadcast.

        Returns:
            As many as there are indices.
        """
        return GPPosterior(self.root[index], self.white[index])

    def whiten(self, cross: Float[Tensor, "*batch t n"]) -> Float[Tensor, "*batch t n"]:
        """Rows of the root for covariances with the observations.

        Args:
            cross: k(X, x) at n places, ``*batch x t x n``.

        Returns:
            L^-1 k(X, x), ``*batch x t x n``.
        """
        rows: Tensor = torch.linalg.solve_triangular(self.root, cross, upper=False)
        return rows

    def predict(
        self, rows: Float[Tensor, "*batch t n"], prior_variance: Float[Tensor, "*#batch n"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        """The posterior mean of f less the prior's, and its variance.

        Args:
            rows: What ``whiten`` returns for n places, ``*batch x t x n``.
            prior_variance: k(x, x), ``*batch x n``.

        Returns:
            Mean and variance, ``*batch x n`` each.
        """
        mean = torch.einsum("...tn,...t->...n", rows, self.white)
        return mean, (prior_variance - rows.square().sum(dim=-2)).clamp_min(0)

    def append(
        self,
        cross: Float[Tensor, "*batch t"],
        prior_variance: Float[Tensor, "*batch"],
        noise_variance: Float[Tensor, "*batch"],
        value: Float[Tensor, "*batch"],
    ) -> "GPPosterior":
        """The posterior after one more observation, in O(t^2).

        Args:
            cross: k(X, x) of its place, ``*batch x t``.
            prior_variance: k(x, x), ``*batch``.
            noise_variance: Of the observation, ``*batch``.
            value: The observation less the prior mean, ``*batch``.

        Returns:
            The posterior with t + 1 observations.
        """
        rows = self.whiten(cross[..., None])
        mean, variance = self.predict(rows, prior_variance[..., None])
        std = (variance[..., 0] + noise_variance).sqrt()
        root = pad(self.root, (0, 1, 0, 1))
        root[..., -1, :-1] = rows[..., 0]
        root[..., -1, -1] = std
        return GPPosterior(root, torch.cat([self.white, ((value - mean[..., 0]) / std)[..., None]], dim=-1))

    def log_evidence(self) -> Float[Tensor, "*batch"]:
        """The log density of all observations.

        Returns:
            ``*batch``; zero before the first observation.
        """
        return log_density(self.white, self.root.diagonal(dim1=-2, dim2=-1)).sum(dim=-1)


def condition(
    covariance: Float[Tensor, "*#batch t t"],
    variance: Float[Tensor, " *#batch"] | float,
    value: Float[Tensor, "*#batch t"],
) -> GPPosterior:
    """The posterior given t observations at once.

    Args:
        covariance: K of their places, ``*batch x t x t``.
        variance: Of their noise, broadcast over the batch.
        value: The observations less the prior mean, ``*batch x t``.

    Returns:
        Root and whitened observations.
    """
    root = noisy_root(covariance, variance)
    white: Tensor = torch.linalg.solve_triangular(root, value[..., None], upper=False)
    return GPPosterior(root, white[..., 0])


def no_observations(*batch: int) -> GPPosterior:
    """The prior, in double precision.

    Args:
        batch: Sizes of the batch.

    Returns:
        A posterior with t = 0.
    """
    return GPPosterior(torch.zeros((*batch, 0, 0), dtype=torch.float64), torch.zeros((*batch, 0), dtype=torch.float64))
