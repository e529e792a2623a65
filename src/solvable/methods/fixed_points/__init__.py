"""Fixed points: saddle points of replica and state-evolution equations, differentiated implicitly, and small linear systems."""
