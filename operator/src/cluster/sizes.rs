//! How many of each: pools as their `PDPool`s say, routers, and the budgets that follow.

use super::apply::Writer;
use super::error::ApplyError;
use super::facts::PodFacts;
use crate::controller::build::Resources;
use crate::controller::build::budget::{Evictable, Mover, build_budgets};
use crate::controller::build::component::Component;
use crate::controller::build::pool::Pool;
use crate::controller::plan::Desired;
use crate::controller::validate::Valid;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_crds::PoolRole;
use pd_crds::drain::OnCordon;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::scaling::ScalingMode;
use pd_protocol::labels;

impl Writer<'_> {
    /// What is wanted of each pool, as its `PDPool` says once it exists.
    pub(super) async fn desired(
        &self,
        valid: &Valid,
        resources: &Resources,
    ) -> Result<Vec<Desired>, ApplyError> {
        let spec = &valid.deployment().spec;
        let mut desired = Vec::new();
        for pool in [&resources.prefill, &resources.decode] {
            let object = pool.object(self.deployment);
            let name = object.name_any();
            let replicas = match self.context.pools.find(&self.key(), &name) {
                None => {
                    self.create(&object, &self.context.pools, |pool| pool)
                        .await?;
                    pool.replicas
                }
                Some(stored) => {
                    let replicas = u32::try_from(stored.spec.replicas).unwrap_or(0);
                    if spec.autoscaling.mode == ScalingMode::Off && replicas != pool.replicas {
                        self.scale(&name, pool.replicas).await?;
                        // Else the spec has changed, and that is what it asks for.
                        if self.had_wanted(pool) {
                            self.publish(&scale_undone(pool, &name, replicas)).await;
                        }
                        pool.replicas
                    } else {
                        replicas
                    }
                }
            };
            desired.push(pool.desired(spec, replicas));
        }
        Ok(desired)
    }

    /// Whether a pool's size was the wanted one already when the status was last written.
    fn had_wanted(&self, pool: &Pool) -> bool {
        let status = self.deployment.status.as_ref();
        let wanted = status.map(|status| match pool.role {
            PoolRole::Decode => status.pools.decode.desired,
            PoolRole::Prefill => status.pools.prefill.desired,
        });
        wanted.and_then(|wanted| u32::try_from(wanted).ok()) == Some(pool.replicas)
    }

    /// As the spec says; where it leaves the number to others, those that there are.
    pub(super) fn routers_wanted(&self) -> i32 {
        let pods = || {
            let pods = self.context.pods.of(&self.key()).into_iter();
            let role = Component::Router.as_str();
            let routers = pods.filter(|pod| {
                let is_router = pod.labels().get(labels::ROLE).is_some_and(|it| it == role);
                is_router && pod.metadata.deletion_timestamp.is_none()
            });
            i32::try_from(routers.count()).unwrap_or(i32::MAX).max(1)
        };
        self.deployment.spec.router.replicas.unwrap_or_else(pods)
    }

    /// Disruption budgets; while the size of a pool is not known they stay as they are.
    pub(super) async fn apply_budgets(
        &self,
        valid: &Valid,
        desired: &[Desired],
        facts: &[PodFacts],
    ) -> Result<(), ApplyError> {
        let spec = &valid.deployment().spec;
        if desired.is_empty() {
            return Ok(());
        }
        let moves = self.context.nodes.sees() && spec.drain.on_cordon == OnCordon::Move;
        let pools = desired.iter().map(|pool| Evictable {
            replicas: pool.replicas,
            nodes: pool.nodes,
        });
        let pools: Vec<Evictable> = pools.collect();
        let empties_node = facts
            .iter()
            .any(|facts| facts.disposition == NodeDisposition::Evacuate && facts.slot.is_some());
        let mover = if moves {
            Mover::of(&pools, empties_node)
        } else {
            Mover::Eviction
        };
        let wanted: u32 = pools.iter().map(|pool| pool.replicas * pool.nodes).sum();
        // In a rollout there are more, and still only one of them may go.
        let workers = facts.iter().filter(|facts| facts.slot.is_some());
        let exist = workers.map(|facts| facts.members().count()).sum::<usize>();
        let pods = wanted.max(u32::try_from(exist).unwrap_or(u32::MAX));
        let budgets = build_budgets(self.deployment, pods, self.routers_wanted(), mover);
        let known = &self.context.budgets;
        for budget in &budgets {
            self.apply(budget, known).await?;
        }
        let is_wanted = |name: &str| budgets.iter().any(|budget| budget.name_any() == name);
        self.remove_rest(known, is_wanted).await
    }
}

/// Says why a pool that another client scaled has its old size again.
fn scale_undone(pool: &Pool, name: &str, asked: u32) -> Event {
    let (role, replicas) = (Component::from(pool.role).as_str(), pool.replicas);
    Event {
        type_: EventType::Warning,
        reason: "ScaleUndone".to_owned(),
        note: Some(format!(
            "PDPool {name} was set to {asked} and is {replicas} again: with spec.autoscaling.mode \
             Off the size is spec.pools.{role}.replicas; change that, or set the mode to External"
        )),
        action: "Scale".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests;
