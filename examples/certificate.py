"""A statement that one can sign: a certificate for a model of the zoo, kept in a file, and looked at later.

python examples/certificate.py         # seconds
"""

import sys
from pathlib import Path

import cicpe
from cicpe.certification.certificate import append_certificate, read_ledger
from cicpe.certification.certify import calibration_sha256


def main(file=Path("certificates.json"), episodes=20_000):
    """Tests the promise of ``binary-search-6d`` on fresh tasks and keeps the evidence."""
    model = cicpe.load("binary-search-6d")
    earlier = read_ledger(file)  # tests of the same weights have spent alpha
    certificate = cicpe.certify(
        model, epsilon=0.2, delta=0.1, context={"noise": 0.05}, episodes=episodes, ledger=earlier
    )
    append_certificate(file, certificate)
    print(certificate.sentence)
    print(f"{certificate.successes} of {certificate.episodes_used} fresh tasks within 0.2; kept in {file}")
    # Later, before you rely on it: is it about this very model?
    newest = read_ledger(file)[-1]
    newest.check(model.sha256, calibration_sha256(model), model.fingerprint)
    return newest


if __name__ == "__main__":
    sys.exit(0 if main().certified else 1)
