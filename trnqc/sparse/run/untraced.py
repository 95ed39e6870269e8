"""Networks inside ``torch.compile``: they depend on what is stored, so that Dynamo breaks the graph around them.

Imported where Dynamo is there already: otherwise importing it would take longer than most networks.
"""

from __future__ import annotations

import torch

from trnqc.sparse import api
from trnqc.sparse.run import plan

contracted = torch.compiler.disable(api.contracted)
ran = torch.compiler.disable(plan.Plan.ran)
