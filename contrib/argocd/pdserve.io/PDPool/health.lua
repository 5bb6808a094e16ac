-- Health of a PDPool for Argo CD: whether all its replicas are routable. Its PDDeployment says why not.

local status = obj.status or {}
local wanted = (obj.spec or {}).replicas or 0
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return { status = "Progressing", message = "the operator has not seen this generation yet" }
end
local routable = status.routable or 0
local message = routable .. " of " .. wanted .. " replicas are routable"
if routable >= wanted and (status.replicas or 0) <= wanted then
  return { status = "Healthy", message = message }
end
return { status = "Progressing", message = message }
