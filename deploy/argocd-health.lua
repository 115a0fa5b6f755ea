-- The health of an InstanceGroup for Argo CD. Put it into the ConfigMap argocd-cm under the key
-- resource.customizations.health.instancemgr.keikoproj.io_InstanceGroup: see docs/gitops.md.
local function condition(kind)
  for _, found in ipairs((obj.status or {}).conditions or {}) do
    if found.type == kind then
      return found
    end
  end
  return {}
end

local function health(status, message)
  return { status = status, message = message }
end

local ready, stalled, reconciling = condition("Ready"), condition("Stalled"), condition("Reconciling")
local locked = condition("Locked")
if obj.metadata.deletionTimestamp ~= nil then
  if stalled.status == "True" then
    return health("Degraded", stalled.message)
  end
  return health("Progressing", "the nodes are drained and deleted")
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the controller has not seen this change yet")
end
if stalled.status == "True" then
  return health("Degraded", (stalled.reason or "Stalled") .. ": " .. (stalled.message or ""))
end
-- A lock is deliberate. While nodes are not ready, the group is Progressing all the same.
if locked.status == "True" and reconciling.status ~= "True" then
  return health("Suspended", locked.message)
end
if ready.status == "True" and reconciling.status ~= "True" then
  return health("Healthy", ready.message)
end
return health("Progressing", reconciling.message or ready.message)
