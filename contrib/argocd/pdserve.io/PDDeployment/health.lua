-- Health of a PDDeployment for Argo CD: the conditions that its operator writes, in Argo's five words.

local function say(status, message)
  return { status = status, message = message }
end

local status = obj.status or {}
local spec = obj.spec or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, progressing = conditions.Ready, conditions.Progressing
if ready == nil or (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return say("Progressing", "the operator has not seen this generation yet")
end

-- What a person has to mend.
local refused = conditions.SpecValid
if refused ~= nil and refused.status == "False" then
  return say("Degraded", refused.message)
end
for _, condition in pairs(conditions) do
  if condition.reason == "InvalidSpec" or condition.reason == "CannotApply" then
    return say("Degraded", condition.message)
  end
end

-- What a person has put on hold.
local left = 0
local replaced = true
for _, pool in pairs(status.pools or {}) do
  left = left + (pool.current or 0) + (pool.draining or 0)
  replaced = replaced and (pool.updated or 0) >= (pool.current or 0)
end
if spec.suspend then
  if left > 0 then
    return say("Progressing", "spec.suspend: workers finish and leave")
  end
  return say("Suspended", ready.message)
end
if spec.rollout ~= nil and spec.rollout.paused and not replaced then
  return say("Suspended", "spec.rollout.paused holds the new revision back")
end

if conditions.Stalled ~= nil and conditions.Stalled.status == "True" then
  return say("Degraded", conditions.Stalled.message)
end
for _, move in ipairs({ progressing or {}, conditions.Reconciling or {} }) do
  if move.status == "True" then
    return say("Progressing", move.message)
  end
end
if ready.status == "True" or ready.reason == "ScaledToZero" then
  return say("Healthy", ready.message)
end
return say("Degraded", ready.message)
