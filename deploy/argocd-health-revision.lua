-- The health of a BoundariesRevision for Argo CD. Put it into the ConfigMap argocd-cm under the key
-- resource.customizations.health.instancemgr.keikoproj.io_BoundariesRevision: see docs/gitops.md.
local status = obj.status or {}
local orders = obj.spec.orders or {}

local function health(state, message)
  return { status = state, message = message }
end

-- Why the rollout halted or was aborted, and what to do.
local function halt()
  for _, found in ipairs(status.conditions or {}) do
    if found.type == "Halted" and found.status == "True" then
      return found.message
    end
  end
  return status.phase
end

-- The first wave that has not passed.
local function progress()
  if status.withoutWaves then
    return "groups take it without waves"
  end
  for _, wave in ipairs(status.waves or {}) do
    if wave.state ~= "Passed" then
      local done = (wave.done or 0) .. " of " .. (wave.groups or 0) .. " groups are done"
      return "wave " .. wave.name .. " is " .. (wave.state or "Waiting") .. ": " .. (wave.why or done)
    end
  end
  return status.phase
end

if status.phase == nil then
  if (obj.spec.data or {}).rollout ~= nil then
    return health("Progressing", "the controller has not begun the rollout yet")
  end
  return health("Healthy", "it has no rollout: every group switches at once")
end
if status.phase == "Halted" or status.phase == "Returning" then
  return health("Degraded", halt())
end
-- It stays in the history after the ConfigMap was reverted.
if status.phase == "Aborted" then
  return health("Suspended", halt())
end
if status.phase == "Complete" or status.phase == "Superseded" then
  return health("Healthy", status.phase)
end
if orders.paused then
  return health("Suspended", "the rollout is paused")
end
return health("Progressing", progress())
