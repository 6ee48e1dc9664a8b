//! The devices of the pool: the generations of their processes, what the driver reports about them, which
//! process each lost last, and the service of each group on them.

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceId, Group, WorkerId};
use gridpool_protocol::receipt::DeviceInfo;

use super::incidents::Incidents;
use super::owners::Owner;
use super::per_group::PerGroup;
use super::service::Service;
use crate::config::PoolConfig;
use crate::event::Timestamp;

/// One device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) owner: Owner,
    /// The number of its latest process, whatever its group.
    generation: u32,
    /// The process that was last killed or died here, and when.
    lost: Option<(Timestamp, WorkerId)>,
    /// The driver's last report about it, and when it came.
    pub(super) driver_report: Option<(Timestamp, FaultCode)>,
    /// The last report about a lost worker that is in the log.
    pub(super) reported_loss: Option<(WorkerId, FaultCode)>,
    /// Its incidents that the driver has reported.
    pub(super) incidents: Incidents,
    /// The device as a worker found it last.
    pub(super) info: Option<DeviceInfo>,
    services: PerGroup<Service>,
}

impl Device {
    fn new(id: DeviceId) -> Self {
        Self {
            id,
            owner: Owner::This,
            generation: 0,
            lost: None,
            driver_report: None,
            reported_loss: None,
            incidents: Incidents::default(),
            info: None,
            services: PerGroup::new(Service::new()),
        }
    }

    /// A name for the next process of a group.
    pub(super) fn next_worker(&mut self, group: Group) -> WorkerId {
        self.generation += 1;
        let worker = WorkerId { device: self.id, group, generation: self.generation };
        self.service_mut(group).latest = Some(worker);
        worker
    }

    /// It loses this process now or soon.
    pub(super) fn loses(&mut self, now: Timestamp, worker: WorkerId) {
        self.lost = Some((now, worker));
    }

    /// The process that it lost, if so recently that a report of the driver may be about that process.
    pub(super) fn lost_lately(&self, now: Timestamp, config: &PoolConfig) -> Option<WorkerId> {
        let (at, worker) = self.lost?;
        (now.since(at) <= config.incident_window).then_some(worker)
    }

    /// There is a new group.
    pub(super) fn add_service(&mut self) {
        let new = Service::beside(&self.services[Group::Grid]);
        self.services.push(new);
    }

    /// A group has other models than before: how its workers fared says nothing of these. One that has no workers here
    /// has nothing to do with the device's faults.
    pub(super) fn renew_service(&mut self, group: Group, is_used: bool) {
        let new = match is_used {
            true => Service::beside(&self.services[Group::Grid]),
            false => Service::new(),
        };
        let old = std::mem::replace(&mut self.services[group], new);
        self.services[group].counts_on_from(&old);
    }

    pub(super) fn service(&self, group: Group) -> &Service {
        &self.services[group]
    }

    pub(super) fn service_mut(&mut self, group: Group) -> &mut Service {
        &mut self.services[group]
    }

    pub(super) fn services(&self) -> impl Iterator<Item = (Group, &Service)> {
        self.services.iter()
    }

    pub(super) fn services_mut(&mut self) -> impl Iterator<Item = (Group, &mut Service)> {
        self.services.iter_mut()
    }
}

/// All devices, in the order in which they are shown.
#[derive(Clone, Debug)]
pub(super) struct Devices(Vec<Device>);

impl Devices {
    pub(super) fn new(ids: &[DeviceId]) -> Self {
        Self(ids.iter().map(|&id| Device::new(id)).collect())
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

    /// The service that a worker belongs to.
    pub(super) fn service_of(&mut self, worker: WorkerId) -> &mut Service {
        self.at_mut(worker.device).service_mut(worker.group)
    }
}
