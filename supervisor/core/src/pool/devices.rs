//! The devices of the pool: the numbers of their processes, what the driver says of them, which process
//! each has lost last, and the service of each role on them.

use std::collections::BTreeMap;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceId, Role, WorkerId};
use gridpool_protocol::receipt::DeviceInfo;

use super::incidents::Incidents;
use super::service::Service;
use crate::config::PoolConfig;
use crate::event::Timestamp;

/// One device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    /// The number of its latest process, whatever its role.
    generation: u32,
    /// When a process here was last killed, or died, and which.
    lost: Option<(Timestamp, WorkerId)>,
    /// What the driver has told of it last, and when.
    pub(super) driver_said: Option<(Timestamp, FaultCode)>,
    /// What the driver said of a lost worker, and was told in the log.
    pub(super) remarked: Option<(WorkerId, FaultCode)>,
    /// What the driver has told of it.
    pub(super) incidents: Incidents,
    /// The device as a worker found it last.
    pub(super) info: Option<DeviceInfo>,
    services: BTreeMap<Role, Service>,
}

impl Device {
    fn new(id: DeviceId, roles: impl Iterator<Item = Role>) -> Self {
        Self {
            id,
            generation: 0,
            lost: None,
            driver_said: None,
            remarked: None,
            incidents: Incidents::default(),
            info: None,
            services: roles.map(|role| (role, Service::new())).collect(),
        }
    }

    /// A name for the next process of a role.
    pub(super) fn next_worker(&mut self, role: Role) -> WorkerId {
        self.generation += 1;
        let worker = WorkerId { device: self.id, role, generation: self.generation };
        self.service_mut(role).latest = Some(worker);
        worker
    }

    /// It loses this process, now or soon.
    pub(super) fn loses(&mut self, now: Timestamp, worker: WorkerId) {
        self.lost = Some((now, worker));
    }

    /// The process that it has lost, if that was so lately that what the driver says now may be about
    /// it.
    pub(super) fn lost_lately(&self, now: Timestamp, config: &PoolConfig) -> Option<WorkerId> {
        let (at, worker) = self.lost?;
        (now.since(at) <= config.incident_window).then_some(worker)
    }

    pub(super) fn service(&self, role: Role) -> &Service {
        &self.services[&role]
    }

    pub(super) fn service_mut(&mut self, role: Role) -> &mut Service {
        self.services.get_mut(&role).expect("a device has a service of each role")
    }

    pub(super) fn services(&self) -> impl Iterator<Item = (Role, &Service)> {
        self.services.iter().map(|(&role, service)| (role, service))
    }

    pub(super) fn services_mut(&mut self) -> impl Iterator<Item = (Role, &mut Service)> {
        self.services.iter_mut().map(|(&role, service)| (role, service))
    }
}

/// All devices, in the order in which they are shown.
#[derive(Clone, Debug)]
pub(super) struct Devices(Vec<Device>);

impl Devices {
    pub(super) fn new(ids: &[DeviceId], roles: impl Iterator<Item = Role> + Clone) -> Self {
        Self(ids.iter().map(|&id| Device::new(id, roles.clone())).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Device> {
        self.0.iter_mut()
    }

    pub(super) fn find(&self, id: DeviceId) -> Option<&Device> {
        self.iter().find(|device| device.id == id)
    }

    pub(super) fn find_mut(&mut self, id: DeviceId) -> Option<&mut Device> {
        self.iter_mut().find(|device| device.id == id)
    }

    /// A device that is known to be there.
    pub(super) fn at(&self, id: DeviceId) -> &Device {
        self.find(id).expect("devices stay")
    }

    pub(super) fn at_mut(&mut self, id: DeviceId) -> &mut Device {
        self.find_mut(id).expect("devices stay")
    }

    /// What a worker is part of.
    pub(super) fn service_of(&mut self, worker: WorkerId) -> &mut Service {
        self.at_mut(worker.device).service_mut(worker.role)
    }
}
