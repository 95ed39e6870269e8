"""Networks inside ``torch.compile``: a plan depends on what is stored, so Dynamo breaks the graph around the call.

This is imported only if Dynamo is loaded already, since importing Dynamo takes longer than most networks.
"""

from __future__ import annotations

import torch

from trnqc.sparse import api
from trnqc.sparse.run import plan

contracted = torch.compiler.disable(api.contracted)
ran = torch.compiler.disable(plan.Plan.ran)
